//! The names of a set's pods.
//!
//! The name of pod i is a function of the set's UID and i. If a create is repeated, after a lost answer or by the next leader, it has the
//! same name and cannot make a second pod. The function must never change, so that all versions of the operator choose the same names.

/// The characters that the API server uses for generateName.
pub const ALPHABET: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";

/// How many characters follow the prefix.
const SUFFIX: usize = 5;

/// How many suffixes there are: 27 to the power of 5.
const SPACE: u64 = 14_348_907;

/// The distance between the suffixes of consecutive indices. It is coprime to [`SPACE`], a power of 3, so no two indices below [`SPACE`]
/// share a suffix. It is close to the golden section of [`SPACE`], so that consecutive names look different.
const STEP: u64 = 8_868_113;

/// The length to which the API server cuts the prefix for generateName.
const LONGEST_PREFIX: usize = 63 - SUFFIX;

/// The `generateName` of a set's pods.
pub fn prefix(set: &str) -> String {
    format!("{set}-pod")
}

/// The name of the pod with this index in the set of this name and UID.
pub fn pod_name(set: &str, uid: &str, index: u32) -> String {
    let mut name = prefix(set);
    name.truncate(LONGEST_PREFIX);
    let number = (fnv1a(uid) % SPACE + u64::from(index) % SPACE * STEP) % SPACE;
    name.extend(letters::<SUFFIX>(number).map(char::from));
    name
}

/// The lowest digits of a number in base 27, in the letters of [`ALPHABET`], the lowest first.
pub fn letters<const COUNT: usize>(mut number: u64) -> [u8; COUNT] {
    [(); COUNT].map(|()| {
        let letter = ALPHABET[usize::try_from(number % 27).unwrap_or_default()];
        number /= 27;
        letter
    })
}

/// The 64-bit FNV-1a hash. It never changes, unlike the standard library's hashers.
pub fn fnv1a(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

/// The pod names of a set, and which of them are taken.
#[derive(Clone, Copy)]
pub struct Names<'a> {
    /// The name of the pod of this index.
    pub nth: &'a dyn Fn(u32) -> String,
    /// Whether the cache has a pod of this name, with any owner.
    pub is_known: &'a dyn Fn(&str) -> bool,
    /// Whether a pod of this name ended so recently that the name must not be reused.
    pub is_resting: &'a dyn Fn(&str) -> bool,
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    const UID: &str = "8f14e45f-ceea-467f-a830-5a4d3c2b1a00";

    #[test]
    fn names_never_change() {
        let golden: Vec<_> = (0..5).map(|index| pod_name("web", UID, index)).collect();
        assert_eq!(golden, ["web-podqw4ht", "web-poddpm7g", "web-podzg7t4", "web-podm8pkp", "web-pod9x98b"]);
        assert_eq!(pod_name("web", UID, 9_999), "web-podfrpzk");
        assert_eq!(pod_name("podset-sample", "00000000-0000-0000-0000-000000000000", 0), "podset-sample-pod786xx");
    }

    #[test]
    fn no_two_indices_share_a_name() {
        for uid in [UID, "", "another"] {
            let names: BTreeSet<_> = (0..10_000).map(|index| pod_name("web", uid, index)).collect();
            assert_eq!(names.len(), 10_000);
        }
    }

    #[test]
    fn long_names_are_cut_as_the_api_server_cuts_them() {
        let name = pod_name(&"a".repeat(63), UID, 0);
        assert_eq!(name.len(), 63);
        assert!(name.starts_with(&"a".repeat(58)));
        let kept = pod_name(&"a".repeat(50), UID, 0);
        assert!(kept.starts_with(&format!("{}-pod", "a".repeat(50))), "{kept}");
    }

    #[test]
    fn a_recreated_set_gives_its_pods_other_names() {
        assert_ne!(pod_name("web", UID, 0), pod_name("web", "another", 0));
    }
}
