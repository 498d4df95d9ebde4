//! The fields of a Lease that election needs. Each may be missing, because people edit Leases.

use jiff::SignedDuration;
use k8s_openapi::api::coordination::v1::Lease;

/// The duration, in seconds, that a release writes, as `kube-leader-election` does.
pub const RELEASED: i32 = 1;

/// Its resourceVersion.
pub fn version(lease: &Lease) -> u64 {
    number(lease.metadata.resource_version.as_deref())
}

/// Its holder, if any.
pub fn holder(lease: &Lease) -> Option<&str> {
    lease.spec.as_ref()?.holder_identity.as_deref().filter(|holder| !holder.is_empty())
}

/// Its duration; 0 if it has none.
pub fn duration(lease: &Lease) -> SignedDuration {
    let seconds = lease.spec.as_ref().and_then(|spec| spec.lease_duration_seconds);
    SignedDuration::from_secs(seconds.unwrap_or_default().max(0).into())
}

/// Whether its holder released it.
pub fn is_released(lease: &Lease) -> bool {
    lease.spec.as_ref().is_some_and(|spec| {
        spec.holder_identity.as_deref() == Some("") && spec.lease_duration_seconds == Some(RELEASED)
    })
}

/// A resourceVersion as a number; 0 if it is not a number. From Kubernetes 1.35 on, the versions of one resource can be compared.
pub fn number(text: Option<&str>) -> u64 {
    text.and_then(|text| text.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn lease(spec: Value) -> Lease {
        serde_json::from_value(json!({ "metadata": { "uid": "u", "resourceVersion": "7" }, "spec": spec })).unwrap()
    }

    #[test]
    fn only_an_empty_holder_with_one_second_is_a_release() {
        for (spec, expected) in [
            (json!({ "holderIdentity": "", "leaseDurationSeconds": 1 }), true),
            (json!({ "holderIdentity": "", "leaseDurationSeconds": 15 }), false),
            (json!({ "leaseDurationSeconds": 1 }), false),
            (json!({ "holderIdentity": "a", "leaseDurationSeconds": 1 }), false),
            (json!({}), false),
            (Value::Null, false),
        ] {
            assert_eq!(is_released(&lease(spec.clone())), expected, "{spec}");
        }
    }

    #[test]
    fn a_lease_with_an_empty_spec_can_be_read() {
        let empty = lease(json!({}));
        assert_eq!((holder(&empty), duration(&empty)), (None, SignedDuration::ZERO));
        assert_eq!(holder(&lease(json!({ "holderIdentity": "" }))), None);
        assert_eq!(duration(&lease(json!({ "leaseDurationSeconds": -5 }))), SignedDuration::ZERO);
    }
}
