//! The content of the status of a MyCustomResource. Pure.

use jiff::Timestamp;

use super::index::Resource;
use crate::api::{MyCustomResourceStatus, condition};
use operator_kit::statuses;

/// The status of a resource. `wall` is the time of day.
pub fn status(resource: &Resource, is_found: bool, wall: Timestamp) -> MyCustomResourceStatus {
    let friend = resource.friend.as_deref().unwrap_or_default();
    let (reason, message) = if is_found {
        ("FriendFound", format!("a pod named {friend} exists"))
    } else {
        ("FriendMissing", format!("no pod named {friend} exists"))
    };
    let ready = statuses::condition(&resource.status.conditions, condition::READY, true, reason, message, wall);
    MyCustomResourceStatus {
        healthy: is_found,
        observed_generation: Some(resource.generation),
        conditions: vec![ready],
    }
}

/// Whether both statuses are the same, apart from conditions that others have added.
pub fn is_same(stored: &MyCustomResourceStatus, new: &MyCustomResourceStatus) -> bool {
    let MyCustomResourceStatus { healthy, observed_generation, conditions } = stored;
    (healthy, observed_generation) == (&new.healthy, &new.observed_generation)
        && statuses::are_same(conditions, &new.conditions, &[condition::READY])
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

    use super::*;
    use operator_kit::ObjectKey;

    #[test]
    fn the_status_says_whether_the_friend_exists_and_keeps_the_time() {
        let mut resource = Resource {
            key: ObjectKey::new("default", "one"),
            uid: "u".into(),
            version: 1,
            generation: 4,
            friend: Some("joe".into()),
            status: MyCustomResourceStatus::default(),
        };
        let first = "2026-01-01T12:00:00.9Z".parse().unwrap();
        let missing = status(&resource, false, first);
        assert!(!missing.healthy);
        assert_eq!(missing.observed_generation, Some(4));
        let ready = &missing.conditions[0];
        assert_eq!((ready.status.as_str(), ready.reason.as_str()), ("True", "FriendMissing"));
        assert_eq!(ready.last_transition_time.0.to_string(), "2026-01-01T12:00:00Z");

        let mut stored = missing.clone();
        stored.conditions.insert(0, Condition { type_: "Foreign".to_owned(), ..missing.conditions[0].clone() });
        stored.conditions[1].observed_generation = Some(4);
        assert!(is_same(&stored, &missing), "conditions of others do not matter");

        resource.status = missing;
        let found = status(&resource, true, "2026-01-01T13:00:00Z".parse().unwrap());
        assert!(found.healthy && !is_same(&resource.status, &found));
        assert_eq!(found.conditions[0].reason, "FriendFound");
        assert_eq!(found.conditions[0].last_transition_time.0.to_string(), "2026-01-01T12:00:00Z");
    }
}
