//! Counts every attempt to send a request by its status code. An attempt that fails or is given up before its answer counts as an error.

use http::{Method, Request, Response};
use kube::client::Body;
use tower::{BoxError, Service, ServiceExt};

use crate::{telemetry::metrics::Requests, text::authority};

/// These connections, with their requests counted.
pub fn counted<S, B>(
    connections: S,
    requests: Requests,
) -> impl Service<Request<Body>, Response = Response<B>, Error = BoxError, Future: Send> + Clone + Send + Sync
where
    S: Service<Request<Body>, Response = Response<B>, Future: Send, Error: Into<BoxError>> + Clone + Send + Sync,
    B: Send,
{
    tower::service_fn(move |request: Request<Body>| {
        let (connections, requests) = (connections.clone(), requests.clone());
        async move {
            let (method, host) = (request.method().clone(), authority(request.uri()).to_owned());
            let mut in_flight = InFlight { requests, method, host, code: None };
            let answer = connections.oneshot(request).await.map_err(Into::into);
            in_flight.code = answer.as_ref().ok().map(|response| response.status().as_u16());
            answer
        }
    })
}

/// A request in flight. It is counted when this is dropped.
struct InFlight {
    requests: Requests,
    method: Method,
    host: String,
    /// The status code of the answer, if any.
    code: Option<u16>,
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.requests.sent(&self.method, &self.host, self.code);
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use futures::FutureExt;

    use super::*;
    use crate::telemetry::metrics::{Format, Metrics};
    use leadership::env::testing::virtual_env;

    /// An API server that never responds at `/never`, and breaks the connection at `/broken`.
    async fn serve(request: Request<Body>) -> Result<Response<Body>, BoxError> {
        match request.uri().path() {
            "/never" => pending().await,
            "/broken" => Err("the connection broke".into()),
            _ => Ok(Response::builder().status(404).body(Body::empty())?),
        }
    }

    #[test]
    fn every_request_is_counted_once_whatever_its_outcome() {
        let metrics = Metrics::new(virtual_env());
        let counted = counted(tower::service_fn(serve), metrics.requests());
        let call = |method: Method, path: &str| {
            let request = Request::builder().method(method).uri(format!("https://host{path}")).body(Body::empty());
            counted.clone().call(request.unwrap())
        };
        let counts = || {
            let text = metrics.text(Format::OpenMetrics).unwrap();
            let lines = text.lines().filter(|line| line.starts_with("rest_client_requests_total"));
            let mut lines: Vec<_> = lines.map(str::to_owned).collect();
            lines.sort_unstable();
            lines
        };
        let line = |code: &str, method: &str| {
            format!(r#"rest_client_requests_total{{code="{code}",method="{method}",host="host"}} 1"#)
        };
        // The response is counted at its beginning, as a watch goes on for long.
        let answer = call(Method::GET, "/").now_or_never().unwrap().unwrap();
        assert_eq!(counts(), [line("404", "GET")]);
        drop(answer);
        let mut waiting = Box::pin(call(Method::PUT, "/never"));
        assert!(waiting.as_mut().now_or_never().is_none());
        assert_eq!(counts(), [line("404", "GET")], "it may still be answered");
        drop(waiting);
        drop(call(Method::PATCH, "/never"));
        assert!(call(Method::POST, "/broken").now_or_never().unwrap().is_err());
        assert_eq!(counts(), [line("404", "GET"), line("<error>", "POST"), line("<error>", "PUT")]);
    }
}
