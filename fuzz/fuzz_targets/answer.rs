//! Reads any response to a write, and to a read of one object. Only a Status of the API server about the request proves
//! that nothing was written, that a pod was deleted, or that an object does not exist.
#![no_main]

use arbitrary::Arbitrary;
use http::{Request, StatusCode};
use k8s_openapi::api::core::v1::Pod as PodResource;
use kube::core::Status;
use leadership::answer::Proof;
use libfuzzer_sys::fuzz_target;
use operator_kit::{
    ObjectKey,
    client::{Reader, response_error},
    text,
};
use podset_operator::podset::{act::fuzzing, observe::Pod, rejection};
use podset_operator_fuzz::{Edit, POD, client, edited, run};
use serde_json::{Value, json};

#[derive(Arbitrary, Debug)]
enum Body {
    Status(u16, Vec<Edit>),
    Pod(Vec<Edit>),
    Bytes(Vec<u8>),
}

fuzz_target!(|input: (u16, Body)| {
    let (code, body) = input;
    let code = StatusCode::from_u16(200 + code % 400).expect("a code is from 100 to 999");
    let bytes = match body {
        Body::Status(number, edits) => {
            let details =
                json!({ "name": "web-pod12345", "kind": "pods", "causes": [{ "field": "spec", "reason": "x" }] });
            let status = json!({
                "kind": "Status", "status": "Failure", "code": if number % 2 == 0 { code.as_u16() } else { number },
                "reason": "NotFound", "message": "Internal error occurred: failed calling webhook", "details": details,
            });
            edited(&status, &edits).to_string().into_bytes()
        }
        Body::Pod(edits) => edited(&POD, &edits).to_string().into_bytes(),
        Body::Bytes(bytes) => bytes,
    };
    let json: Value = serde_json::from_slice(&bytes).unwrap_or_default();
    // serde takes a list for the fields of an object. The API server never sends one there.
    if json.is_array() || json["metadata"].is_array() {
        return;
    }
    let says = json["code"].as_u64() == Some(code.as_u16().into());
    match Proof::of(code, &bytes) {
        Proof::Done => assert!(code.is_success()),
        Proof::Rejected(_) => {
            let is_webhook = code == 500 && json["message"].as_str().unwrap_or_default().contains("calling webhook");
            let is_certain = code.is_client_error() && code != 408 && code != 429;
            assert!(says && (is_certain || is_webhook), "{code} proves nothing");
        }
        Proof::Unclear(status) => assert!(!code.is_success() && (says || status.is_none())),
    }

    if let Ok(pod) = fuzzing::decoded(&bytes) {
        let has = |field: &str| json["metadata"][field].as_str().is_some_and(|text| !text.is_empty());
        assert!(has("name") && has("uid") && pod.version > 0, "this is not a pod: {json}");
        let another = format!("not-{}", pod.uid).into();
        assert!(fuzzing::accepted(&bytes, &pod.uid).is_some() && fuzzing::accepted(&bytes, &another).is_none());
    } else if fuzzing::accepted(&bytes, &"any".into()).is_some() {
        assert_eq!(json["status"], "Success");
    }

    let kube::Error::Api(status) = response_error(code, &bytes) else { panic!("it is an error of the API") };
    assert_eq!(status.code, code.as_u16());
    assert!(text::in_words(&status).len() <= text::LONGEST);
    let rejected = rejection::read(&status, "web-pod12345", "web-pod", 1);
    assert!(rejected.message.len() <= text::LONGEST);

    let answer = bytes.clone();
    let answer = move |_: Request<_>| Some((code.as_u16(), vec![Ok(answer.clone().into())]));
    let key = ObjectKey::new("a", "web-pod12345");
    let read = async { Reader::new(client(answer), &http::Uri::default()).get::<PodResource, Pod>(&key).await };
    if let Ok(found) = run(read) {
        let is_absent = serde_json::from_slice(&bytes).is_ok_and(|status: Status| {
            status.reason == "NotFound" && status.details.is_some_and(|details| details.name == "web-pod12345")
        });
        assert_eq!(found.is_some(), code.is_success());
        assert!(found.is_some() || is_absent, "{code} does not prove that the pod is absent");
    }
});
