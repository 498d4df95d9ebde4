//! Counts every request by what the API server answered, beneath all else: what is counted was sent.

use std::task::{Context, Poll};

use futures::future::BoxFuture;
use http::{Request, Response};
use kube::client::Body;
use tower::{BoxError, Service};

use crate::telemetry::metrics::Requests;

/// A connection to the API server whose requests are counted.
#[derive(Clone)]
pub struct Counted<S> {
    /// The connection.
    pub connection: S,
    /// Where they are counted.
    pub requests: Requests,
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
        let host = request.uri().authority().map(ToString::to_string).unwrap_or_default();
        let answer = self.connection.call(request);
        Box::pin(async move {
            let answer = answer.await.map_err(Into::into);
            requests.sent(&method, &host, answer.as_ref().ok().map(|response| response.status().as_u16()));
            answer
        })
    }
}
