//! The reading client. It bounds the time of each read, and sends each request once.

use std::time::Duration;

use http::{Method, Request, StatusCode, Uri};
use kube::{Client, Resource, client::Body, core::Status};
use serde::de::DeserializeOwned;

use super::traced::Traced;
use crate::{
    ObjectKey,
    budget::Budget,
    fair::FairSemaphore,
    meta::Watched,
    requests,
    text::{in_full, in_words},
};
use leadership::answer::is_absent;

/// The most reads of single objects in flight. Each has its own connection, and a small answer waits for no budget.
const GETS_AT_ONCE: usize = 64;

/// The timeout of a read that is not a watch.
const READ_TIMEOUT: Duration = Duration::from_secs(10);

/// How many bytes of an error are read.
const MAX_ERROR_BYTES: usize = 64 * 1024;

/// How many characters of an error that is not a Status are shown.
const SHOWN_CHARACTERS: usize = 200;

/// Why a read failed.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The API server did not answer in time.
    #[error("the API server did not answer within {} s", .0.as_secs())]
    Timeout(Duration),
    /// The answer is too large. The rest of it was not read.
    #[error("the answer has more than {0} bytes")]
    TooLarge(usize),
    /// The watch ended without an event.
    #[error("the watch ended without an event")]
    Idle,
    /// The API server could not be reached, or returned an error.
    #[error("{0}")]
    Api(#[from] kube::Error),
}

/// The only way for controllers to read.
#[derive(Clone)]
pub struct Reader {
    client: Client,
    /// The URL of the API server, for the spans of reads.
    url: Uri,
    /// Bounds the memory for large answers.
    budget: Budget,
    slots: FairSemaphore,
}

/// The error in an answer, from the API server or from a proxy or load balancer before it. These may answer with any text, of any length.
pub fn response_error(code: StatusCode, body: &[u8]) -> kube::Error {
    let without_status = || {
        let text = String::from_utf8_lossy(body);
        let words: Vec<&str> = text.split_whitespace().collect();
        let message = words.join(" ").chars().take(SHOWN_CHARACTERS).collect::<String>();
        Status::failure(if message.is_empty() { "the response has no message" } else { &message }, &code.to_string())
    };
    kube::Error::Api(status(body).unwrap_or_else(without_status).with_code(code.as_u16()).boxed())
}

/// Returns the object of a response, or an error if it has no resourceVersion: a proxy before the API server may answer anything.
pub fn with_version<T: Watched>(object: T) -> serde_json::Result<T> {
    if object.version() > 0 {
        return Ok(object);
    }
    Err(serde::de::Error::custom("the response does not contain an object with a resourceVersion"))
}

/// The Status in this body. Any object decodes as a Status, because all its fields are optional, so it must have a code or be a failure.
pub fn status(json: &[u8]) -> Option<Status> {
    serde_json::from_slice(json).ok().filter(|status: &Status| status.code != 0 || status.is_failure())
}

impl Reader {
    /// Reads through `client`, which talks to the API server at `url`.
    pub fn new(client: Client, url: &Uri) -> Self {
        Reader { client, url: url.clone(), budget: Budget::default(), slots: FairSemaphore::new(GETS_AT_ONCE) }
    }

    /// Reads one answer of at most `max_bytes`. Returns it with its size in bytes.
    ///
    /// # Errors
    ///
    /// If the API server is not reached, does not answer in time or returns an error, or if the answer is larger.
    pub async fn read<T: DeserializeOwned>(
        &self,
        mut request: Request<Vec<u8>>,
        max_bytes: usize,
    ) -> Result<(T, usize), ReadError> {
        let mut traced = Traced::read(&mut request, &self.url);
        let exchange = async {
            let body = self.ask(request).await?;
            let (body, _room) = self.budget.collect(body, max_bytes).await?;
            if body.len() > max_bytes {
                return Err(ReadError::TooLarge(max_bytes));
            }
            let answer = serde_json::from_slice(&body).map_err(kube::Error::SerdeError)?;
            Ok((answer, body.len()))
        };
        let answer =
            tokio::time::timeout(READ_TIMEOUT, exchange).await.unwrap_or(Err(ReadError::Timeout(READ_TIMEOUT)));
        match &answer {
            Ok(_) => traced.answered(200, None),
            Err(ReadError::Api(kube::Error::Api(status))) => traced.answered(status.code, Some(&in_words(status))),
            Err(error @ ReadError::TooLarge(_)) => traced.failed("too_large", &error.to_string()),
            Err(error @ ReadError::Timeout(_)) => traced.failed("timeout", &error.to_string()),
            Err(error) => traced.failed("transport", &in_full(error)),
        }
        answer
    }

    /// Reads one object, consistently; `None` if it does not exist. Namespaces share the places for these reads, see [`crate::fair`].
    ///
    /// # Errors
    ///
    /// The reason why it cannot be read; also if the response has no resourceVersion.
    pub async fn get<K, W>(&self, key: &ObjectKey) -> Result<Option<W>, String>
    where
        K: Resource<DynamicType = ()>,
        W: Watched,
    {
        let _slot = self.slots.acquire(&key.namespace).await;
        let request = requests::get::<K>(key).map_err(|error| error.to_string())?;
        match self.read(request, usize::MAX).await {
            Ok((object, _)) => with_version(object).map(Some).map_err(|error| in_full(&kube::Error::SerdeError(error))),
            Err(ReadError::Api(kube::Error::Api(status))) if is_absent(&status, &key.name) => Ok(None),
            Err(error) => Err(in_full(&error)),
        }
    }

    /// Sends a request, and returns the body of the answer as a stream. Watches use it: the request has no time limit and no span.
    ///
    /// # Errors
    ///
    /// If the API server is not reached, or returns an error; also if the request may change something.
    pub async fn ask(&self, request: Request<Vec<u8>>) -> kube::Result<Body> {
        if request.method() != Method::GET {
            let refusal = format!("the reader refuses to send {} {}", request.method(), request.uri().path());
            return Err(kube::Error::Service(refusal.into()));
        }
        let (head, body) = self.client.send(request.map(Body::from)).await?.into_parts();
        if head.status.is_success() {
            return Ok(body);
        }
        // If the body breaks off, the code still says enough.
        let (body, _room) = self.budget.collect(body, MAX_ERROR_BYTES).await.unwrap_or_default();
        Err(response_error(head.status, &body))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use futures::future::join_all;
    use http::Response;
    use k8s_openapi::api::core::v1::Pod;
    use serde::Deserialize;
    use serde_json::json;
    use tower::BoxError;

    use super::*;
    use crate::{lock, meta::Meta};

    #[derive(Debug, Deserialize)]
    struct Object {
        metadata: Meta,
    }

    impl Watched for Object {
        fn version(&self) -> u64 {
            self.metadata.version()
        }
    }

    /// Reads the pod `web-1` and gets this response.
    async fn read(code: u16, body: &str) -> Result<Option<Object>, String> {
        let body = body.to_owned();
        let service = tower::service_fn(move |_: Request<Body>| {
            let answer = Response::builder().status(code).body(Body::from(body.clone().into_bytes()));
            std::future::ready(answer)
        });
        let reader = Reader::new(Client::new(service, "default"), &http::Uri::default());
        reader.get::<Pod, _>(&ObjectKey::new("a", "web-1")).await
    }

    #[tokio::test]
    async fn only_a_not_found_for_the_object_proves_its_absence() {
        let status = |reason: &str, details| {
            let status =
                json!({ "kind": "Status", "status": "Failure", "code": 404, "reason": reason, "details": details });
            status.to_string()
        };
        let absent = status("NotFound", json!({ "name": "web-1", "kind": "pods" }));
        assert!(read(404, &absent).await.unwrap().is_none());
        for body in [
            status("NotFound", json!({})),
            status("NotFound", json!({ "name": "a", "kind": "namespaces" })),
            status("Gone", json!({ "name": "web-1", "kind": "pods" })),
            "404 page not found\n".to_owned(),
            String::new(),
        ] {
            read(404, &body).await.expect_err(&body);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn many_reads_of_one_namespace_leave_room_for_another() {
        let asked = Arc::new(Mutex::new(Vec::new()));
        let record = asked.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            lock(&record).push(request.uri().path().to_owned());
            std::future::pending::<Result<Response<Body>, BoxError>>()
        });
        let reader = Reader::new(Client::new(service, "default"), &Uri::default());
        let get = async |namespace: &str| reader.get::<Pod, Object>(&ObjectKey::new(namespace, "web-1")).await;
        let busy = join_all((0..1_000).map(|_| get("busy")));
        let reads = async { tokio::join!(busy, get("other")) };
        tokio::time::timeout(READ_TIMEOUT / 2, reads).await.expect_err("no read is answered");
        let asked = lock(&asked);
        assert_eq!(asked.iter().filter(|path| path.contains("/busy/")).count(), GETS_AT_ONCE * 3 / 4);
        assert_eq!(asked.len(), GETS_AT_ONCE * 3 / 4 + 1);
    }

    #[tokio::test]
    async fn a_response_without_a_resource_version_is_an_error() {
        for body in ["{}", r#"{"metadata": {}}"#, r#"{"kind": "Status", "metadata": {}, "status": "Success"}"#] {
            read(200, body).await.expect_err(body);
        }
        assert!(read(200, r#"{"metadata": {"name": "web-1", "resourceVersion": "7"}}"#).await.unwrap().is_some());
    }

    #[tokio::test]
    async fn a_write_is_not_sent() {
        let service = tower::service_fn(async |request: Request<Body>| -> Result<Response<Body>, BoxError> {
            panic!("{request:?} was sent")
        });
        let reader = Reader::new(Client::new(service, "default"), &Uri::default());
        for method in [Method::POST, Method::PUT, Method::PATCH, Method::DELETE] {
            let request = Request::builder().method(&method).uri("/api/v1/namespaces/a/pods").body(Vec::new()).unwrap();
            let refusal = reader.ask(request).await.expect_err("it only reads").to_string();
            let expected = format!("the reader refuses to send {method} /api/v1/namespaces/a/pods");
            assert!(refusal.contains(&expected), "{refusal}");
        }
    }

    #[tokio::test]
    async fn a_foreign_response_is_cut_in_the_error() {
        let page = format!("<html>\n<body>{}", "no gateway ".repeat(1000));
        let text = read(502, &page).await.unwrap_err();
        assert!(text.starts_with("502 Bad Gateway: <html> <body>no gateway no gateway") && text.len() < 250, "{text}");
    }
}
