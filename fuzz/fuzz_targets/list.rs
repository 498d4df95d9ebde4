//! Reads a list from any pages. The result has every item of every page, as of the last page, or is an error. A
//! response that is not a list is not an empty list.
#![no_main]

use std::sync::{Arc, Mutex};

use http::Request;
use kube::client::Body;
use libfuzzer_sys::fuzz_target;
use operator_kit::{
    client::Reader,
    listwatch::{Source, is_stale, list},
    meta::version,
};
use podset_operator::podset::observe::Pod;
use podset_operator_fuzz::{Edit, client, edited, run};
use serde_json::{Value, json};

fuzz_target!(|pages: Vec<(u16, Vec<Edit>)>| {
    let pods = || {
        let pod = |uid| json!({ "metadata": { "name": uid, "uid": uid, "resourceVersion": "3" }, "status": {} });
        [pod("a"), pod("b")]
    };
    let read = Arc::new(Mutex::new(Vec::<Value>::new()));
    let (noted, mut answers) = (read.clone(), pages.into_iter());
    let answer = move |_: Request<Body>| {
        let (code, edits) = answers.next().unwrap_or((410, Vec::new()));
        let page = json!({ "metadata": { "resourceVersion": "7", "continue": "" }, "items": pods() });
        let page = edited(&page, &edits);
        let body = page.to_string();
        let code = if code < 1000 { 400 + code % 200 } else { 200 };
        if code == 200 {
            noted.lock().unwrap().push(page);
        }
        Some((code, vec![Ok(body.into())]))
    };
    let source = Source { what: "pods", path: "/api/v1/pods".into(), labels: None, metadata_only: false, is_stale };
    let Ok((pods, reached)) =
        run(async { list(&Reader::new(client(answer), &http::Uri::default()), &source, |_: &Pod| true).await })
    else {
        return;
    };
    let pages = read.lock().unwrap();
    // serde takes a list for the fields of an object. The API server never sends one there.
    if !pages.iter().all(|page| page["metadata"].is_object()) {
        return;
    }
    let items = pages.iter().flat_map(|page| match page.get("items") {
        Some(Value::Array(items)) => items.clone(),
        Some(Value::Null) => Vec::new(),
        other => panic!("this is not a list: {other:?}"),
    });
    let expected: Vec<Pod> = items.map(|item| serde_json::from_value(item).expect("it was read")).collect();
    assert_eq!(pods, expected);
    let last = &pages.last().expect("a page was read")["metadata"];
    assert_eq!(reached, version(last["resourceVersion"].as_str().expect("a list has a version")));
    assert!(last["continue"].as_str().unwrap_or_default().is_empty(), "there are more pages");
});
