//! How errors and URLs are shown in logs, conditions and traces.

use std::error::Error;

use http::Uri;
use kube::core::Status;

use leadership::with_causes;

/// The most bytes of an error that conditions, logs and traces carry: an API server or a webhook may send far more.
pub const LONGEST: usize = 1024;

/// The beginning of a text, at most `bytes` bytes long.
pub fn cut(text: &str, bytes: usize) -> String {
    text[..text.floor_char_boundary(bytes)].to_owned()
}

/// The reason and the message of an error from the API server, in at most [`LONGEST`] bytes.
pub fn in_words(status: &Status) -> String {
    cut(&format!("{}: {}", status.reason, status.message), LONGEST)
}

/// An error with its causes, in at most [`LONGEST`] bytes. If the API server returned the error, only its reason and message.
pub fn in_full(error: &(dyn Error + 'static)) -> String {
    cut(&with_causes(error), LONGEST)
}

/// The host and port of a URL, without user and password.
pub fn authority(url: &Uri) -> &str {
    let authority = url.authority().map_or("", |authority| authority.as_str());
    authority.rsplit('@').next().unwrap_or_default()
}

/// A URL that is safe to log: without user, password, query and trailing slash.
pub fn shown(url: &Uri) -> String {
    [url.scheme_str().unwrap_or("https"), "://", authority(url), url.path().trim_end_matches('/')].concat()
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("wrapped: {0}")]
    struct Wrapped(#[source] kube::Error);

    #[test]
    fn a_rejection_shows_the_message_of_the_api_server() {
        let rejection = || {
            let status = Status::failure("storage is (re)initializing", "TooManyRequests").with_code(429);
            kube::Error::Api(Box::new(status))
        };
        for error in [Box::new(rejection()) as Box<dyn Error>, Box::new(Wrapped(rejection()))] {
            assert_eq!(in_full(&*error), "TooManyRequests: storage is (re)initializing");
        }
    }

    #[test]
    fn texts_are_cut_between_characters() {
        assert_eq!(cut("aé", 2), "a");
        assert_eq!(cut("aé", 3), "aé");
    }

    #[test]
    fn long_errors_are_cut() {
        let long = "é".repeat(LONGEST);
        let status = || Status::failure(&long, "Forbidden").with_code(403).boxed();
        let expected = "é".repeat((LONGEST - "Forbidden: ".len()) / 2);
        assert_eq!(in_words(&status()), format!("Forbidden: {expected}"));
        assert_eq!(in_full(&kube::Error::Api(status())), in_words(&status()));
        assert!(in_full(&io::Error::other(long.clone())).len() <= LONGEST);
    }

    #[test]
    fn an_authority_is_shown_without_the_password() {
        for (url, shown) in [("https://me:secret@[::1]:6443/base", "[::1]:6443"), ("http://localhost", "localhost")] {
            assert_eq!(authority(&url.parse().unwrap()), shown);
        }
    }

    #[test]
    fn an_error_shows_its_cause() {
        let hidden = io::Error::other("connection refused");
        let error = kube::Error::Service(Box::new(hidden));
        assert!(in_full(&error).ends_with("connection refused"), "{}", in_full(&error));
    }
}
