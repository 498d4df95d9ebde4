//! The tower service that a client takes for its connection, and the body of its answers. What
//! becomes of a request is decided in `carry.rs`.

use std::{
    error::Error,
    fmt,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use bytes::Bytes;
use futures::future::BoxFuture;
use http::{Request, Response};
use http_body::Frame;
use kube::client::Body;
use tokio::sync::mpsc;

use super::{
    ApiServer,
    carry::{Answer, accept},
    request::{ApiRequest, Unreadable},
};

/// The connection broke.
#[derive(Clone, Copy, Debug)]
pub struct Cut;

impl fmt::Display for Cut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("connection reset by peer")
    }
}

impl Error for Cut {}

/// The body of an answer: whole, or the stream of a watch.
pub enum AnswerBody {
    /// One frame.
    Whole(Option<Bytes>),
    /// A frame for each event.
    Stream(mpsc::UnboundedReceiver<Result<Bytes, Cut>>),
}

impl http_body::Body for AnswerBody {
    type Data = Bytes;
    type Error = Cut;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Cut>>> {
        match &mut *self {
            Self::Whole(bytes) => Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes)))),
            Self::Stream(lines) => lines.poll_recv(cx).map(|line| line.map(|line| line.map(Frame::data))),
        }
    }
}

/// One client's way to the API server; a tower service for [`kube::Client::new`], or for the layers
/// that an operator puts around its connection.
#[derive(Clone)]
pub struct Connection {
    server: ApiServer,
    instance: Arc<str>,
}

impl Connection {
    /// The connection of the client called `instance`.
    pub fn new(server: ApiServer, instance: &str) -> Self {
        Self { server, instance: instance.into() }
    }

    /// What the client sends, or is answered, is held up on its own side: no log tells of that.
    pub fn is_held_up(&self) {
        self.server.with(|state| state.truth.held_up());
    }
}

impl tower::Service<Request<Body>> for Connection {
    type Response = Response<AnswerBody>;
    type Error = Cut;
    type Future = BoxFuture<'static, Result<Self::Response, Cut>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Cut>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let Self { server, instance } = self.clone();
        Box::pin(async move {
            match ApiRequest::read(&instance, request).await {
                Ok(mut request) => {
                    if !server.shared.with(|state| state.settings.protobuf) {
                        request.without_protobuf();
                    }
                    accept(&server.shared, Arc::new(request)).await
                }
                Err(Unreadable::Refused(status)) => Ok(Answer::from(*status).into_response()),
                Err(Unreadable::UnknownPath) => Ok(Answer::NoSuchPath.into_response()),
            }
        })
    }
}
