//! What the API server says of pods to those who ask for protobuf: the fields that an operator may read, under the numbers of
//! Kubernetes' `generated.proto` files. Pure.

use bytes::Bytes;
use serde_json::Value;

use self::Holds::{Integer, Many, One, Text, Texts, Time, Truth};

/// A field: its name in JSON, its number, and what it holds.
struct Field(&'static str, u64, Holds);

enum Holds {
    Text,
    Integer,
    Truth,
    Time,
    Texts,
    One(&'static [Field]),
    Many(&'static [Field]),
}

const OWNER: &[Field] = &[
    Field("kind", 1, Text),
    Field("name", 3, Text),
    Field("uid", 4, Text),
    Field("apiVersion", 5, Text),
    Field("controller", 6, Truth),
    Field("blockOwnerDeletion", 7, Truth),
];

const METADATA: &[Field] = &[
    Field("name", 1, Text),
    Field("generateName", 2, Text),
    Field("namespace", 3, Text),
    Field("uid", 5, Text),
    Field("resourceVersion", 6, Text),
    Field("generation", 7, Integer),
    Field("creationTimestamp", 8, Time),
    Field("deletionTimestamp", 9, Time),
    Field("deletionGracePeriodSeconds", 10, Integer),
    Field("labels", 11, Texts),
    Field("annotations", 12, Texts),
    Field("ownerReferences", 13, Many(OWNER)),
];

const STATE: &[Field] = &[
    Field("waiting", 1, One(&[Field("reason", 1, Text), Field("message", 2, Text)])),
    Field("terminated", 3, One(&[Field("exitCode", 1, Integer), Field("finishedAt", 6, Time)])),
];

const CONTAINER: &[Field] = &[
    Field("name", 1, Text),
    Field("state", 2, One(STATE)),
    Field("ready", 4, Truth),
    Field("restartCount", 5, Integer),
];

const CONDITION: &[Field] = &[
    Field("type", 1, Text),
    Field("status", 2, Text),
    Field("lastTransitionTime", 4, Time),
    Field("reason", 5, Text),
    Field("message", 6, Text),
];

const POD_STATUS: &[Field] = &[
    Field("phase", 1, Text),
    Field("conditions", 2, Many(CONDITION)),
    Field("startTime", 7, Time),
    Field("containerStatuses", 8, Many(CONTAINER)),
    Field("initContainerStatuses", 10, Many(CONTAINER)),
];

const POD: &[Field] = &[
    Field("metadata", 1, One(METADATA)),
    Field("spec", 2, One(&[Field("nodeName", 10, Text)])),
    Field("status", 3, One(POD_STATUS)),
];

const LIST_METADATA: &[Field] =
    &[Field("resourceVersion", 2, Text), Field("continue", 3, Text), Field("remainingItemCount", 4, Integer)];

/// A list of pods, or of their metadata.
const LIST: &[Field] = &[Field("metadata", 1, One(LIST_METADATA)), Field("items", 2, Many(POD))];

const STATUS: &[Field] = &[
    Field("metadata", 1, One(LIST_METADATA)),
    Field("status", 2, Text),
    Field("message", 3, Text),
    Field("reason", 4, Text),
    Field("code", 6, Integer),
];

/// A pod, its metadata, a list of either, or a Status, as it stands for itself.
pub fn object(object: &Value) -> Bytes {
    let text = |name: &str| object[name].as_str().unwrap_or_default();
    let fields = match text("kind") {
        "Status" => STATUS,
        kind if kind.ends_with("List") => LIST,
        _ => POD,
    };
    let mut kind = Vec::new();
    bytes(&mut kind, 1, text("apiVersion").as_bytes());
    bytes(&mut kind, 2, text("kind").as_bytes());
    let mut sealed = b"k8s\0".to_vec();
    bytes(&mut sealed, 1, &kind);
    bytes(&mut sealed, 2, &message(object, fields));
    sealed.into()
}

/// An event of a watch, behind its length.
pub fn event(kind: &str, about: &Value) -> Bytes {
    let (mut raw, mut event) = (Vec::new(), Vec::new());
    bytes(&mut raw, 1, &object(about));
    bytes(&mut event, 1, kind.as_bytes());
    bytes(&mut event, 2, &raw);
    [&u32::try_from(event.len()).unwrap().to_be_bytes()[..], &event].concat().into()
}

fn message(value: &Value, fields: &[Field]) -> Vec<u8> {
    let mut out = Vec::new();
    for Field(name, number, holds) in fields {
        let value = &value[*name];
        match holds {
            // A text that is not set is written as an empty one.
            Text => bytes(&mut out, *number, value.as_str().unwrap_or_default().as_bytes()),
            _ if value.is_null() => {}
            Integer => integer(&mut out, *number, value.as_i64().unwrap()),
            Truth => integer(&mut out, *number, i64::from(value.as_bool().unwrap())),
            Time => bytes(&mut out, *number, &time(value.as_str().unwrap())),
            Texts => value.as_object().unwrap().iter().for_each(|(key, value)| {
                let mut entry = Vec::new();
                bytes(&mut entry, 1, key.as_bytes());
                bytes(&mut entry, 2, value.as_str().unwrap().as_bytes());
                bytes(&mut out, *number, &entry);
            }),
            One(fields) => bytes(&mut out, *number, &message(value, fields)),
            Many(fields) => {
                value.as_array().unwrap().iter().for_each(|item| bytes(&mut out, *number, &message(item, fields)))
            }
        }
    }
    out
}

fn time(text: &str) -> Vec<u8> {
    let time: jiff::Timestamp = text.parse().unwrap();
    let mut out = Vec::new();
    integer(&mut out, 1, time.as_second());
    integer(&mut out, 2, time.subsec_nanosecond().into());
    out
}

fn bytes(out: &mut Vec<u8>, number: u64, bytes: &[u8]) {
    varint(out, number << 3 | 2);
    varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

fn integer(out: &mut Vec<u8>, number: u64, value: i64) {
    varint(out, number << 3);
    varint(out, value as u64);
}

fn varint(out: &mut Vec<u8>, mut value: u64) {
    while value > 127 {
        out.push(value as u8 | 128);
        value >>= 7;
    }
    out.push(value as u8);
}

#[cfg(test)]
mod tests {
    use podset_operator::{client::protobuf::opened, controllers::podset::observe::Pod, listwatch::Watched};
    use serde_json::Deserializer;

    use super::*;

    /// The watch of a pod that a real API server told in both forms.
    const RECORDED: (&str, &[u8]) =
        (include_str!("../../data/pods.watch.json"), include_bytes!("../../data/pods.watch.pb"));

    #[test]
    fn a_pod_is_said_as_a_real_api_server_says_it() {
        let (json, protobuf) = RECORDED;
        let recorded: Value = Deserializer::from_str(json).into_iter().next().unwrap().unwrap();
        let decode = |sealed| Pod::PROTOBUF.unwrap()(opened(sealed).unwrap()).unwrap();
        // The object stands at the end of the event, which stands at the beginning of the watch.
        let length = u32::from_be_bytes(*protobuf.first_chunk().unwrap()) as usize + 4;
        let begins = protobuf.windows(4).position(|bytes| bytes == b"k8s\0").unwrap();
        let real = decode(Bytes::from_static(&protobuf[begins..length]));
        assert_eq!(decode(object(&recorded["object"])), real);
    }
}
