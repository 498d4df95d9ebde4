//! When lists and watches are sent and what is logged, depending on the responses of the API server.

use std::sync::{Arc, Mutex};

use bytes::Bytes;
use futures::{StreamExt, stream};
use http::{Request, Response};
use http_body_util::StreamBody;
use hyper::body::Frame;
use kube::{Client, client::Body};
use serde::Deserialize;
use tokio::time::{Instant, sleep, timeout};
use tower::BoxError;

use super::{synced::Synced, *};
use crate::testing::CapturedLogs;
use leadership::env::testing::virtual_env;

/// The code and body of the response to a watch, and after how many seconds its connection is cut. With 0, the response ends normally.
type Answer = (u16, &'static str, u64);

const LIST: Answer = (200, r#"{"metadata":{"resourceVersion":"7"},"items":[]}"#, 0);
const QUIET: Answer = (200, "", 20);
const BUSY: Answer = (429, "Too many requests, please try again later.\n", 0);
const EXPIRED: Answer = (
    200,
    r#"{"type":"ERROR","object":{"kind":"Status","status":"Failure","reason":"Expired","message":"too old","code":410}}"#,
    0,
);

/// The requests and logs of a list-watch.
#[derive(Debug, Default)]
struct Asked {
    /// When lists were sent, in tenths of a second.
    lists: Vec<u128>,
    /// When watches were sent, in tenths of a second.
    watches: Vec<u128>,
    /// The log, without debug lines.
    log: Vec<String>,
}

/// A watched object.
#[derive(Deserialize)]
struct Thing {
    version: u64,
}

impl Watched for Thing {
    fn version(&self) -> u64 {
        self.version
    }
}

fn body((_, text, lives): Answer) -> impl http_body::Body<Data = Bytes, Error = BoxError> + Send + 'static {
    let text = stream::iter([Ok::<_, BoxError>(Frame::data(Bytes::from_static(text.as_bytes())))]);
    let cut = stream::iter((lives > 0).then_some(lives)).then(|lives| async move {
        sleep(Duration::from_secs(lives)).await;
        Err::<Frame<Bytes>, _>(BoxError::from("connection reset by peer"))
    });
    StreamBody::new(text.chain(cut))
}

/// Lists and watches for so many seconds. `answer` is the response to each watch, by its number from 1 on.
async fn asked(seconds: u64, answer: fn(usize) -> Answer) -> Asked {
    let (start, asked) = (Instant::now(), Arc::new(Mutex::new(Asked::default())));
    let noted = Arc::clone(&asked);
    let service = tower::service_fn(move |request: Request<Body>| {
        let now = start.elapsed().as_millis() / 100;
        let mut noted = noted.lock().unwrap();
        let answer = if request.uri().query().is_some_and(|query| query.contains("watch=true")) {
            noted.watches.push(now);
            answer(noted.watches.len())
        } else {
            noted.lists.push(now);
            LIST
        };
        let response = Response::builder().status(answer.0).body(body(answer)).unwrap();
        async move { Ok::<_, BoxError>(response) }
    });
    let source = Source { what: "things", path: "/things".to_owned(), labels: None, metadata_only: false, is_stale };
    let logs = CapturedLogs::start();
    let reader = Reader::new(Client::new(service, "default"), &http::Uri::default());
    let listing = Synced::default().register("things", &None);
    let running = run(reader, source, virtual_env(), listing, |_: Change<Thing>| {});
    assert!(timeout(Duration::from_secs(seconds), running).await.is_err(), "it never ends");
    let mut asked = std::mem::take(&mut *asked.lock().unwrap());
    asked.log = logs.text().lines().filter(|line| line.contains("things")).map(str::to_owned).collect();
    asked
}

/// Asserts that the log has exactly these lines, which contain these words.
#[track_caller]
fn logged(asked: &Asked, words: &[&str]) {
    let log = &asked.log;
    assert!(log.len() == words.len() && log.iter().zip(words).all(|(line, words)| line.contains(words)), "{log:?}");
}

#[tokio::test(start_paused = true)]
async fn a_watch_rejected_in_plain_text_backs_off_without_a_relist() {
    let asked = asked(70, |number| if number <= 4 { BUSY } else { (200, "", 60) }).await;
    assert_eq!(asked.lists, [0]);
    assert_eq!(asked.watches, [0, 5, 15, 35, 75, 680]);
    logged(
        &asked,
        &["code 429; trying again error=\"429 Too Many Requests: Too many", "can list and watch things again"],
    );
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_expires_once_relists_at_once() {
    let asked = asked(60, |number| if number == 1 { EXPIRED } else { (200, "", 100) }).await;
    assert_eq!((&asked.lists[..], &asked.watches[..]), (&[0, 5][..], &[0, 5][..]));
    logged(&asked, &[]);
}

#[tokio::test(start_paused = true)]
async fn watches_that_keep_failing_relist_with_backoff() {
    let cases: [fn(usize) -> Answer; 3] = [|_| EXPIRED, |_| (404, "404 page not found\n", 0), |_| (200, "<html>", 0)];
    for gone in cases {
        let asked = asked(30, gone).await;
        assert!((6..40).contains(&asked.lists.len()), "{asked:?}");
        assert_eq!(asked.lists, asked.watches);
        assert_eq!(asked.log.len(), 1, "{asked:?}");
    }
    let asked = asked(60, |number| if number <= 4 { EXPIRED } else { (200, "", 100) }).await;
    assert_eq!(asked.lists, [0, 5, 15, 35, 75]);
    logged(
        &asked,
        &[
            "cannot watch things: the API server answered with code 410; trying again error=\"Expired: too old",
            "can list and watch things again",
        ],
    );
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_expires_after_an_outage_relists_at_once() {
    let answer = |number| match number {
        1..=6 => (200, "", 1),
        7 => EXPIRED,
        _ => (200, "", 100),
    };
    let asked = asked(120, answer).await;
    assert_eq!(asked.lists, [0, asked.watches[6] + 5], "{asked:?}");
}

#[tokio::test(start_paused = true)]
async fn a_quiet_watch_that_is_cut_restarts_at_once() {
    let asked = asked(100, |_| QUIET).await;
    assert_eq!(asked.lists, [0]);
    assert_eq!(asked.watches, [0, 205, 410, 615, 820]);
    logged(&asked, &[]);
}

#[tokio::test(start_paused = true)]
async fn a_silent_watch_is_followed_by_a_list() {
    let asked = asked(400, |_| (200, "", 1000)).await;
    assert_eq!(asked.lists, [0, 1505, 3015]);
    assert_eq!(asked.watches, asked.lists);
    logged(&asked, &["the API server did not answer in time"]);
}

#[tokio::test(start_paused = true)]
async fn a_watch_without_events_after_a_silent_one_resets_the_backoff() {
    let asked = asked(300, |number| if number == 1 { (200, "", 1000) } else { QUIET }).await;
    assert_eq!(asked.lists, [0, 1505]);
    assert_eq!(asked.watches[3..], [1920, 2125, 2330, 2535, 2740, 2945], "the pauses do not grow");
    logged(&asked, &["did not answer in time", "connection reset", "can list and watch things again"]);
}

#[tokio::test(start_paused = true)]
async fn rejected_watches_are_followed_by_a_list() {
    let asked = asked(400, |_| (403, "no", 0)).await;
    assert_eq!(asked.lists, [0, 1505, 3005]);
}

#[tokio::test(start_paused = true)]
async fn watches_that_always_break_immediately_are_followed_by_a_list() {
    let asked = asked(400, |_| (200, "", 1)).await;
    assert_eq!(asked.lists.len(), 3, "{asked:?}");
}

/// As behind a proxy that passes on no stream.
#[tokio::test(start_paused = true)]
async fn watches_that_always_end_immediately_are_followed_by_a_list() {
    let asked = asked(400, |_| (200, "", 0)).await;
    assert_eq!(asked.lists, [0, 1505, 3005]);
}

#[tokio::test(start_paused = true)]
async fn watches_that_end_immediately_are_logged() {
    let asked = asked(70, |number| if number <= 4 { (200, "", 0) } else { (200, "", 60) }).await;
    assert_eq!((&asked.lists[..], &asked.watches[..5]), (&[0][..], &[0, 5, 15, 35, 75][..]));
    logged(&asked, &["cannot watch things: the watch ends as soon as it is idle", "can list and watch things again"]);
}

/// A list of two pages: how often each page still fails, and how often it was requested.
async fn pages(refused: [usize; 2]) -> (Result<(usize, u64), ReadError>, [usize; 2]) {
    let asked = Arc::new(Mutex::new([0; 2]));
    let noted = Arc::clone(&asked);
    let service = tower::service_fn(move |request: Request<Body>| {
        let page = usize::from(request.uri().query().is_some_and(|query| query.contains("continue=")));
        let mut noted = noted.lock().unwrap();
        noted[page] += 1;
        let (code, text) = match (noted[page] > refused[page], page) {
            (false, _) => (429, "Too many requests"),
            (true, 0) => (200, r#"{"metadata":{"resourceVersion":"7","continue":"on"},"items":[{"version":1}]}"#),
            (true, _) => (200, r#"{"metadata":{"resourceVersion":"7"},"items":[{"version":2}]}"#),
        };
        let response = Response::builder().status(code).body(Body::from(text.as_bytes().to_vec())).unwrap();
        async move { Ok::<_, BoxError>(response) }
    });
    let path = "/things".to_owned();
    let source = Source { what: "things", path, labels: None, metadata_only: false, is_stale };
    let reader = Reader::new(Client::new(service, "default"), &http::Uri::default());
    let listed = list(&reader, &source, |_: &Thing| true).await.map(|(items, version)| (items.len(), version));
    let asked = *asked.lock().unwrap();
    (listed, asked)
}

#[tokio::test]
async fn a_page_that_cannot_be_read_does_not_cost_those_before_it() {
    let (listed, asked) = pages([0, 1]).await;
    assert_eq!((listed.unwrap(), asked), ((2, 7), [1, 2]));
    for (refused, expected) in [([1, 0], [1, 0]), ([0, 2], [1, 2])] {
        let (listed, asked) = pages(refused).await;
        assert!(listed.is_err());
        assert_eq!(
            asked, expected,
            "the first page costs nothing that was read, and none is asked for again and again"
        );
    }
}

#[tokio::test]
async fn a_response_without_items_is_not_an_empty_list() {
    for (items, expected) in [(r#","items":[]"#, Some(0)), (r#","items":null"#, Some(0)), ("", None)] {
        let service = tower::service_fn(move |_: Request<Body>| {
            let text = format!(r#"{{"metadata":{{"resourceVersion":"7"}}{items}}}"#);
            async move { Ok::<_, BoxError>(Response::new(Body::from(text.into_bytes()))) }
        });
        let source =
            Source { what: "things", path: "/things".to_owned(), labels: None, metadata_only: false, is_stale };
        let reader = Reader::new(Client::new(service, "default"), &http::Uri::default());
        let listed = list(&reader, &source, |_: &Thing| true).await;
        assert_eq!(listed.ok().map(|(items, _)| items.len()), expected, "{items}");
    }
}

#[test]
fn versions_are_numbers() {
    assert_eq!(meta::version("1234"), 1234);
    assert_eq!(meta::version(""), 0);
}

async fn listed(sizes: &[usize]) -> (Vec<(usize, usize)>, Vec<u64>) {
    listed_slowly(sizes, Duration::ZERO).await
}

/// Lists things of these sizes from a server that needs the time `each` for every thing. Returns the limit and offset of each request, and
/// the versions of the things.
async fn listed_slowly(sizes: &[usize], each: Duration) -> (Vec<(usize, usize)>, Vec<u64>) {
    let asked = Arc::new(Mutex::new(Vec::new()));
    let (noted, sizes) = (Arc::clone(&asked), sizes.to_vec());
    let service = tower::service_fn(move |request: Request<Body>| {
        let query = request.uri().query().unwrap_or_default().to_owned();
        let number = |key: &str| query.split('&').find_map(|pair| pair.strip_prefix(key)).map(|n| n.parse().unwrap());
        let (limit, from): (usize, usize) = (number("limit=").unwrap(), number("continue=").unwrap_or(0));
        noted.lock().unwrap().push((limit, from));
        let to = sizes.len().min(from + limit);
        let thing = |index: usize| format!(r#"{{"version":{index},"text":"{}"}}"#, "x".repeat(sizes[index]));
        let items = (from..to).map(thing).collect::<Vec<_>>().join(",");
        let next = if to < sizes.len() { to.to_string() } else { String::new() };
        let text = format!(r#"{{"metadata":{{"resourceVersion":"7","continue":"{next}"}},"items":[{items}]}}"#);
        // In pieces, as from a connection.
        let pieces: Vec<_> =
            text.as_bytes().chunks(100_000).map(|piece| Ok(Frame::data(piece.to_vec().into()))).collect();
        async move {
            tokio::time::sleep(each * u32::try_from(to - from)?).await;
            Ok::<_, BoxError>(Response::new(StreamBody::new(stream::iter::<Vec<Result<_, BoxError>>>(pieces))))
        }
    });
    let path = "/things".to_owned();
    let source = Source { what: "things", path, labels: None, metadata_only: false, is_stale };
    let reader = Reader::new(Client::new(service, "default"), &http::Uri::default());
    let (things, version) = list(&reader, &source, |_: &Thing| true).await.unwrap();
    assert_eq!(version, 7);
    let asked = std::mem::take(&mut *asked.lock().unwrap());
    (asked, things.into_iter().map(|thing| thing.version).collect())
}

#[tokio::test]
async fn pages_of_small_objects_grow() {
    let (asked, things) = listed(&[100; 1100]).await;
    assert_eq!(asked, [(100, 0), (400, 100), (500, 500), (500, 1000)]);
    assert_eq!(things, (0..1100).collect::<Vec<u64>>());
    assert_eq!(listed(&[100; 100]).await.0, [(100, 0)]);
    assert_eq!(listed(&[]).await.0, [(100, 0)]);
}

#[tokio::test]
async fn a_page_with_too_many_bytes_is_retried_with_fewer_objects() {
    let (asked, things) = listed(&[1_000_000; 8]).await;
    assert_eq!(asked, [(100, 0), (25, 0), (6, 0), (1, 0), (2, 1), (2, 3), (2, 5), (2, 7)]);
    assert_eq!(things, (0..8).collect::<Vec<u64>>());
}

#[tokio::test(start_paused = true)]
async fn a_later_page_that_takes_too_long_is_retried_with_fewer_objects() {
    let (asked, things) = listed_slowly(&[100; 350], Duration::from_millis(80)).await;
    assert_eq!(asked, [(100, 0), (400, 100), (400, 100), (100, 100), (100, 200), (100, 300)]);
    assert_eq!(things, (0..350).collect::<Vec<u64>>());
}

#[tokio::test]
async fn an_object_larger_than_a_page_comes_alone_and_pages_grow_again() {
    let sizes = [&[100; 110][..], &[2 * crate::budget::LARGE, crate::budget::LARGE], &[100; 100]].concat();
    let (asked, things) = listed(&sizes).await;
    let around = [(100, 0), (400, 100), (100, 100), (25, 100), (6, 100), (24, 106), (6, 106), (1, 106)];
    assert_eq!(asked[..8], around, "earlier pages are not read again");
    assert_eq!(asked[8..14], [(4, 107), (1, 107), (4, 108), (1, 108), (4, 109), (1, 109)]);
    assert_eq!(asked[14..], [(4, 110), (1, 110), (1, 111), (1, 112), (4, 113), (16, 117), (64, 133), (256, 197)]);
    assert_eq!(things, (0..212).collect::<Vec<u64>>());
}

#[test]
fn the_next_limit_fills_half_of_a_page() {
    let half = crate::budget::LARGE / 2;
    for (limit, bytes, next) in [(100, 0, 400), (400, 1, 500), (100, half, 100), (100, half / 2, 200), (1, half + 1, 1)]
    {
        assert_eq!(list::next_limit(limit, bytes), next, "{limit} {bytes}");
    }
}
