//! Counts every request by its status code. This is the lowest layer, so that only requests that were sent count. A request that is given
//! up before its answer counts as an error.

use std::task::{Context, Poll};

use futures::future::BoxFuture;
use http::{Method, Request, Response};
use kube::client::Body;
use tower::{BoxError, Service};

use crate::{telemetry::metrics::Requests, text::place};

/// A connection whose requests are counted.
#[derive(Clone)]
pub struct Counted<S> {
    /// The connection.
    pub connection: S,
    /// The counter.
    pub requests: Requests,
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

impl<S, B> Service<Request<Body>> for Counted<S>
where
    S: Service<Request<Body>, Response = Response<B>>,
    S::Future: Send + 'static,
    S::Error: Into<BoxError>,
{
    type Response = Response<B>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Response<B>, BoxError>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.connection.poll_ready(cx).map_err(Into::into)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let requests = self.requests.clone();
        let method = request.method().clone();
        let host = place(request.uri()).to_owned();
        let answer = self.connection.call(request);
        Box::pin(async move {
            // Nothing is sent before the first poll.
            let mut in_flight = InFlight { requests, method, host, code: None };
            let answer = answer.await.map_err(Into::into);
            in_flight.code = answer.as_ref().ok().map(|response| response.status().as_u16());
            answer
        })
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use futures::FutureExt;

    use super::*;
    use crate::telemetry::metrics::{Format, Metrics};
    use leadership::env::testing::virtual_env;

    /// An API server that says nothing at `/never`, and breaks the connection at `/broken`.
    async fn serve(request: Request<Body>) -> Result<Response<Body>, BoxError> {
        match request.uri().path() {
            "/never" => pending().await,
            "/broken" => Err("the connection broke".into()),
            _ => Ok(Response::builder().status(404).body(Body::empty())?),
        }
    }

    #[test]
    fn every_request_is_counted_once_whatever_becomes_of_it() {
        let metrics = Metrics::new(virtual_env());
        let mut counted = Counted { connection: tower::service_fn(serve), requests: metrics.requests() };
        let mut call = |method: Method, path: &str| {
            let request = Request::builder().method(method).uri(format!("https://host{path}")).body(Body::empty());
            counted.call(request.unwrap())
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
        // A watch goes on after this.
        let answer = call(Method::GET, "/").now_or_never().unwrap().unwrap();
        assert_eq!(counts(), [line("404", "GET")]);
        drop(answer);
        let mut waiting = call(Method::PUT, "/never");
        assert!((&mut waiting).now_or_never().is_none());
        assert_eq!(counts(), [line("404", "GET")], "it may still be answered");
        drop(waiting);
        drop(call(Method::PATCH, "/never"));
        assert!(call(Method::POST, "/broken").now_or_never().unwrap().is_err());
        assert_eq!(counts(), [line("404", "GET"), line("<error>", "POST"), line("<error>", "PUT")]);
    }
}
