//! Parsers for the values of flags. Their errors say what to give instead.

use jiff::SignedDuration;

/// The longest duration of a Lease, in seconds.
const MAX_SECONDS: i64 = i32::MAX as i64;

/// Parses a duration of the election, such as `15s` or `1m30s`. A Lease has whole seconds.
pub fn seconds(text: &str) -> Result<SignedDuration, String> {
    match text.parse::<SignedDuration>() {
        Ok(duration) if duration.subsec_nanos() == 0 && (1..=MAX_SECONDS).contains(&duration.as_secs()) => Ok(duration),
        _ => Err(format!("give whole seconds with a unit, as in 15s or 1m30s: at least 1s, at most {MAX_SECONDS}s")),
    }
}

/// Parses a namespace: a DNS label.
pub fn namespace(text: &str) -> Result<String, String> {
    if text.is_empty() {
        return Err("it is empty: give a namespace, or leave it out".to_owned());
    }
    let is_valid = text.len() <= 63 && is_part_of_a_name(text);
    is_valid.then(|| text.to_owned()).ok_or_else(|| {
        "a namespace has 1 to 63 lower-case letters, digits and '-', and neither begins nor ends with '-'".to_owned()
    })
}

/// Parses the name of a Lease: a DNS subdomain.
pub fn lease_name(text: &str) -> Result<String, String> {
    let is_valid = text.len() <= 253 && text.split('.').all(is_part_of_a_name);
    is_valid.then(|| text.to_owned()).ok_or_else(|| {
        "the name of a lease has 1 to 253 lower-case letters, digits, '-' and '.', and each part between dots begins and \
         ends with a letter or digit"
            .to_owned()
    })
}

/// Parses a container image.
pub fn image(text: &str) -> Result<String, String> {
    let is_valid = !text.is_empty() && !text.contains(char::is_whitespace);
    is_valid.then(|| text.to_owned()).ok_or_else(|| "give an image without spaces, as registry/name:tag".to_owned())
}

fn is_part_of_a_name(text: &str) -> bool {
    let is_inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    !text.is_empty() && text.bytes().all(is_inner) && !text.starts_with('-') && !text.ends_with('-')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_whole_seconds_that_a_lease_can_hold() {
        for (text, expected) in
            [("15s", 15), ("1m30s", 90), ("2m", 120), ("1h0m1s", 3601), ("2147483647s", MAX_SECONDS)]
        {
            assert_eq!(seconds(text), Ok(SignedDuration::from_secs(expected)), "{text}");
        }
        for text in [
            "15",
            "1m30",
            "1.5s",
            "500ms",
            "100ns",
            "-0.5s",
            "0s",
            "-15s",
            "",
            "s",
            "1d",
            "15s and more",
            "2147483648s",
            "9223372036854775807h",
            "99999999999999999999s",
        ] {
            let sentence = seconds(text).unwrap_err();
            let remedy = "give whole seconds with a unit, as in 15s or 1m30s: at least 1s, at most 2147483647s";
            assert_eq!(sentence, remedy, "{text:?}");
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
