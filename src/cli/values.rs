//! How the values of flags are read: text in; a value, or the sentence for whoever gave it, out.

use jiff::SignedDuration;
use tracing_subscriber::{EnvFilter, filter::LevelFilter};

use super::{BindAddress, Directives};

/// The most seconds that a Lease can hold.
const MOST_SECONDS: i64 = i32::MAX as i64;

/// An address to serve at, written as in Go.
pub fn bind_address(text: &str) -> Result<BindAddress, String> {
    if text == "0" {
        return Ok(BindAddress::Off);
    }
    let (host, port) = text.rsplit_once(':').ok_or("give it as HOST:PORT or :PORT, or as 0 to turn it off")?;
    let is_bracketed = host.starts_with('[') && host.ends_with(']');
    if host.contains(':') && !is_bracketed {
        return Err("an IPv6 address stands in brackets: give it as [ADDRESS]:PORT".to_owned());
    }
    let port = port.parse().map_err(|_| format!("{port:?} is not a port: give a number from 0 to 65535"))?;
    Ok(BindAddress::At { host: host.trim_matches(['[', ']']).to_owned(), port })
}

/// A duration of the election, such as `15s` or `1m30s`. A Lease holds whole seconds.
pub fn seconds(text: &str) -> Result<SignedDuration, String> {
    const HOW: &str = "give whole seconds with their unit, as in 15s or 1m30s";
    let duration: SignedDuration = text.parse().map_err(|_| HOW)?;
    if duration.subsec_nanos() != 0 {
        return Err(format!("a lease has no fractions of a second: {HOW}"));
    }
    match duration.as_secs() {
        1..=MOST_SECONDS => Ok(duration),
        ..=0 => Err(format!("it must be longer than 0: {HOW}")),
        _ => Err(format!("it must not be longer than {MOST_SECONDS}s, the most that a lease can hold")),
    }
}

/// A namespace: a DNS label.
pub fn namespace(text: &str) -> Result<String, String> {
    if text.is_empty() {
        return Err("it is empty: give a namespace, or leave it out".to_owned());
    }
    let is_valid = text.len() <= 63 && is_part_of_a_name(text);
    is_valid.then(|| text.to_owned()).ok_or_else(|| {
        "a namespace has 1 to 63 lower-case letters, digits and '-', and neither begins nor ends with '-'".to_owned()
    })
}

/// The name of a Lease: a DNS subdomain.
pub fn lease_name(text: &str) -> Result<String, String> {
    let is_valid = text.len() <= 253 && text.split('.').all(is_part_of_a_name);
    is_valid.then(|| text.to_owned()).ok_or_else(|| {
        "a lease is named by 1 to 253 lower-case letters, digits, '-' and '.', and each part between dots begins and ends \
         with a letter or digit"
            .to_owned()
    })
}

/// An image of a container.
pub fn image(text: &str) -> Result<String, String> {
    let is_valid = !text.is_empty() && !text.contains(char::is_whitespace);
    is_valid.then(|| text.to_owned()).ok_or_else(|| "an image is named without spaces, as registry/name:tag".to_owned())
}

/// What to log.
pub fn log_level(text: &str) -> Result<Directives, String> {
    // The parser refuses some spaces without a word of them, and panics at others.
    if text.contains(char::is_whitespace) {
        return Err("give it without spaces: info,hyper=debug".to_owned());
    }
    // A bare word would be taken for a module: a misspelt level must not pass in silence.
    let is_level = |word: &str| !word.is_empty() && word.parse::<LevelFilter>().is_ok();
    let is_plausible = |part: &str| part.contains(['=', '[']) || is_level(part);
    match EnvFilter::try_new(text) {
        Ok(_) if text.split(',').all(is_plausible) => Ok(Directives(text.to_owned())),
        _ => Err("give error, warn, info, debug or trace, or directives as in RUST_LOG: info,hyper=debug".to_owned()),
    }
}

fn is_part_of_a_name(text: &str) -> bool {
    let is_inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    !text.is_empty() && text.bytes().all(is_inner) && !text.starts_with('-') && !text.ends_with('-')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_as_in_go() {
        let at = |host: &str, port| BindAddress::At { host: host.to_owned(), port };
        assert_eq!(bind_address("0"), Ok(BindAddress::Off));
        assert_eq!(bind_address(":8081"), Ok(at("", 8081)));
        assert_eq!(bind_address("127.0.0.1:0"), Ok(at("127.0.0.1", 0)));
        assert_eq!(bind_address("[::1]:80"), Ok(at("::1", 80)));
        assert!(bind_address("::1:80").unwrap_err().contains("brackets"));
    }

    #[test]
    fn times_are_whole_seconds_that_a_lease_can_hold() {
        for (text, expected) in
            [("15s", 15), ("1m30s", 90), ("2m", 120), ("1h0m1s", 3601), ("2147483647s", MOST_SECONDS)]
        {
            assert_eq!(seconds(text), Ok(SignedDuration::from_secs(expected)), "{text}");
        }
        for (text, remedy) in [
            ("15", "with their unit"),
            ("1m30", "with their unit"),
            ("1.5s", "no fractions"),
            ("500ms", "no fractions"),
            ("100ns", "no fractions"),
            ("-0.5s", "no fractions"),
            ("0s", "longer than 0"),
            ("-15s", "longer than 0"),
            ("", "give whole seconds"),
            ("s", "give whole seconds"),
            ("1d", "give whole seconds"),
            ("15s and more", "give whole seconds"),
            ("2147483648s", "not be longer"),
            ("9223372036854775807h", "give whole seconds"),
            ("99999999999999999999s", "give whole seconds"),
        ] {
            let sentence = seconds(text).unwrap_err();
            assert!(sentence.contains(remedy), "{text:?}: {sentence}");
        }
    }

    #[test]
    fn directives_have_no_spaces() {
        assert!(log_level("info,hyper=debug").is_ok());
        for text in ["info, hyper=debug", "info, é=debug", " info"] {
            assert_eq!(log_level(text), Err("give it without spaces: info,hyper=debug".to_owned()), "{text:?}");
        }
    }

    #[test]
    fn names_of_leases_are_dns_subdomains() {
        for name in ["podset-operator", "a.b-c.3", &["a"; 127].join(".")] {
            assert_eq!(lease_name(name).as_deref(), Ok(name));
        }
        for name in ["", "A", "a_b", ".a", "a.", "a..b", "-a", "a-.b", &"a".repeat(254)] {
            assert!(lease_name(name).is_err(), "{name}");
        }
    }
}
