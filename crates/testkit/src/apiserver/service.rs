//! A client's connection. `carry.rs` handles the requests.

use http::{Request, Response};
use http_body_util::{BodyExt, combinators::UnsyncBoxBody};
use hyper::{
    body::{Bytes, Incoming},
    server::conn::http1,
};
use hyper_util::{rt::TokioIo, service::TowerToHyperService};
use kube::client::Body;
use tokio::io::{AsyncRead, AsyncWrite, DuplexStream, duplex};
use tokio_util::sync::CancellationToken;

use super::*;

/// The body of an answer: one frame, or a frame for each event of a watch.
pub type AnswerBody = UnsyncBoxBody<Bytes, Cut>;

/// The size of a connection's buffer in bytes.
const BUFFER: usize = 64 * 1024;

#[derive(Clone)]
pub struct Connection {
    server: ApiServer,
    instance: Arc<str>,
}

impl ApiServer {
    /// The connection of the client called `instance`, for an operator that adds layers around it.
    pub fn connection(&self, instance: &str) -> Connection {
        Connection { server: self.clone(), instance: instance.into() }
    }

    /// Makes the API server unreachable: breaks all connections, and accepts none.
    pub fn become_unreachable(&self) {
        self.with(|state| {
            state.listener.away = Some(state.coverage.place_fault());
            std::mem::take(&mut state.listener.accepted).cancel();
        });
        self.watches().cut();
    }

    pub fn become_reachable(&self) {
        self.with(|state| state.listener.away = None);
    }
}

impl Connection {
    /// A stream on which the server speaks HTTP/1.1, unless it is unreachable.
    pub fn dial(&self) -> Result<DuplexStream, Cut> {
        let (ours, theirs) = duplex(BUFFER);
        self.serve(theirs)?;
        Ok(ours)
    }

    fn reach(&self) -> Result<CancellationToken, Cut> {
        self.server.with(|state| state.listener.reach(&mut state.coverage))
    }

    /// Speaks HTTP/1.1 on a stream until either side ends the connection, unless the server is unreachable.
    pub fn serve(&self, stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static) -> Result<(), Cut> {
        // A refused connection leaves no entry in the request log, so this notifies the observers.
        let broken = self.reach().inspect_err(|_| self.server.with(|state| state.observers.events.delayed()))?;
        let service = TowerToHyperService::new(tower::service_fn({
            let connection = self.clone();
            move |request| connection.clone().receive(request)
        }));
        let serving = http1::Builder::new().auto_date_header(false).serve_connection(TokioIo::new(stream), service);
        tokio::spawn(broken.run_until_cancelled_owned(serving));
        Ok(())
    }

    async fn receive(self, request: Request<Incoming>) -> Result<Response<AnswerBody>, Cut> {
        let (head, body) = request.into_parts();
        let body = body.collect().await.map_err(|_| Cut)?.to_bytes();
        self.send(Request::from_parts(head, Body::from(body))).await
    }

    pub async fn send(self, request: Request<Body>) -> Result<Response<AnswerBody>, Cut> {
        self.reach()?;
        match ApiRequest::read(&self.instance, request).await {
            Ok(request) => self.server.accept(Arc::new(request)).await,
            Err(status) => Ok(status.map_or(Answer::NoSuchPath, Answer::from).into_response(&self.server, false)),
        }
    }

    /// Notes that a request or an answer is delayed on the client's side, which no log shows.
    pub fn note_held_up(&self) {
        self.server.with(|state| {
            state.observers.events.delayed();
            state.coverage.held_up(&self.instance);
        });
    }
}
