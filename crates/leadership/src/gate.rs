//! The write gate: each write re-checks leadership just before its bytes leave this process.
//!
//! A process can freeze between any check and the moment at which its bytes leave. So the connections for writes check in the write call to
//! the socket itself, below TLS. A process that does not lead breaks the connection, and with it the request.
//!
//! The gate also records whether a request has left, see [`WritePermit::try_leave`]. The handshake with a proxy or of TLS does not count.

use std::{
    io,
    pin::Pin,
    sync::{Arc, Mutex},
    task::{Context, Poll},
};

use http::Uri;
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::client::legacy::connect::{Connected, Connection};
use tower::{Service, ServiceExt, util::MapResponse};

use crate::{WritePermit, lock};

/// The gate of one connection. [`Connected::get_extras`] of the connection returns it.
#[derive(Clone, Debug)]
pub struct Gate {
    state: Arc<Mutex<State>>,
    may_leave: fn(&WritePermit) -> bool,
}

#[derive(Debug)]
enum State {
    /// The connection is being set up: only handshakes are sent.
    Connecting,
    /// A request with this permit is in flight.
    Open(WritePermit),
    /// No request is in flight, or its answer has begun. Sending the rest of it breaks the connection.
    Shut,
}

impl Gate {
    fn connecting(may_leave: fn(&WritePermit) -> bool) -> Self {
        Gate { state: Arc::new(Mutex::new(State::Connecting)), may_leave }
    }

    /// Opens the gate for one request with this permit.
    pub fn open(&self, permit: WritePermit) {
        *lock(&self.state) = State::Open(permit);
    }

    /// Shuts the gate: until the next `open`, every write fails and so breaks the connection. Called when the connection is set up, and
    /// when an answer has begun.
    pub fn shut(&self) {
        *lock(&self.state) = State::Shut;
    }

    fn check(&self) -> io::Result<()> {
        let why = match &*lock(&self.state) {
            State::Connecting => return Ok(()),
            // Check before recording: a request that may not leave has not left.
            State::Open(permit) if (self.may_leave)(permit) && permit.try_leave() => return Ok(()),
            State::Open(_) => "this process is not the leader, or the request could outlast its term",
            State::Shut => "no request is in flight, or its answer has begun",
        };
        Err(io::Error::new(io::ErrorKind::PermissionDenied, why))
    }
}

/// Adds a gate to each connection that this connector makes; [`gated`](crate::connect::gated) puts TLS on top of it. `may_leave` is
/// [`Rules::may_leave`](crate::promise::Rules::may_leave).
pub fn gate<C: Service<Uri>>(
    connector: C,
    may_leave: fn(&WritePermit) -> bool,
) -> MapResponse<C, impl FnOnce(C::Response) -> Gated<C::Response> + Clone + use<C>> {
    connector.map_response(move |stream| Gated { stream, gate: Gate::connecting(may_leave) })
}

/// A stream with a gate before its writing side.
#[derive(Debug)]
pub struct Gated<S> {
    stream: S,
    gate: Gate,
}

impl<S: Connection> Connection for Gated<S> {
    fn connected(&self) -> Connected {
        self.stream.connected().extra(self.gate.clone())
    }
}

impl<S: Read + Unpin> Read for Gated<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: ReadBufCursor<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

/// Slices are written one by one: the default methods for vectored writes call `poll_write`.
impl<S: Write + Unpin> Write for Gated<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.gate.check()?;
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Ends, LeaderState, env::testing::virtual_env};
    use hyper_util::rt::TokioIo;
    use jiff::SignedDuration;
    use std::time::Duration;
    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};

    fn connection() -> (TokioIo<Gated<TokioIo<DuplexStream>>>, Gate, DuplexStream) {
        let (ours, theirs) = duplex(1024);
        let gate = Gate::connecting(WritePermit::is_valid);
        (TokioIo::new(Gated { stream: TokioIo::new(ours), gate: gate.clone() }), gate, theirs)
    }

    #[tokio::test(start_paused = true)]
    async fn bytes_pass_the_gate_only_during_the_term_of_their_request() {
        let env = virtual_env();
        let mut leader_state = LeaderState::vacant(env.clone());
        let second = |n| env.now() + SignedDuration::from_secs(n);
        leader_state.begin(Some(Ends { gate: second(5), writes: second(20) }));
        let write = leader_state.leadership().begin_write().unwrap();
        let (mut stream, gate, mut server) = connection();
        stream.write_all(b"hello").await.expect("a handshake needs no leadership");
        gate.shut();
        stream.write_all(b"POST").await.expect_err("no request is in flight");
        gate.open(write.permit());
        stream.write_all(b"POST").await.expect("this process leads");
        assert_eq!(stream.write_vectored(&[io::IoSlice::new(b" /")]).await.expect("this process leads"), 2);
        tokio::time::advance(Duration::from_secs(5)).await;
        let refused = stream.write_all(b"pods").await.expect_err("the term is over");
        assert_eq!(refused.kind(), io::ErrorKind::PermissionDenied);
        let refused = stream.write_vectored(&[io::IoSlice::new(b"pods")]).await.expect_err("also for slices");
        assert_eq!(refused.kind(), io::ErrorKind::PermissionDenied);
        drop(stream);
        let mut arrived = String::new();
        server.read_to_string(&mut arrived).await.unwrap();
        assert_eq!(arrived, "helloPOST /");
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_has_left_when_the_gate_lets_its_first_byte_pass() {
        let env = virtual_env();
        let mut leader_state = LeaderState::vacant(env.clone());
        let second = |n| env.now() + SignedDuration::from_secs(n);
        let (early, late) = (second(5), second(20));
        leader_state.begin(Some(Ends { gate: early, writes: late }));
        let leadership = leader_state.leadership();
        let begin = || leadership.begin_write().unwrap();

        let (mut stream, gate, _server) = connection();
        let write = begin();
        stream.write_all(b"hello").await.expect("a handshake needs no leadership");
        gate.shut();
        stream.write_all(b"POST").await.expect_err("no request is in flight");
        gate.open(write.permit());
        assert!(!write.has_left(), "a handshake is not part of a request");
        stream.write_all(b"POST").await.expect_err("it was given up");

        let write = begin();
        gate.open(write.permit());
        stream.write_all(b"P").await.expect("this process leads");
        assert!(write.has_left());

        let write = begin();
        gate.open(write.permit());
        assert_eq!(stream.write_vectored(&[io::IoSlice::new(b"P")]).await.expect("this process leads"), 1);
        assert!(write.has_left());

        // The socket accepts no byte, but it may send it later.
        let (full, _theirs) = duplex(1);
        let gate = Gate::connecting(WritePermit::is_valid);
        let mut stream = TokioIo::new(Gated { stream: TokioIo::new(full), gate: gate.clone() });
        stream.write_all(b"h").await.unwrap();
        let write = begin();
        gate.open(write.permit());
        tokio_test::assert_pending!(tokio_test::task::spawn(stream.write_all(b"P")).poll());
        assert!(write.has_left());

        let write = begin();
        gate.open(write.permit());
        tokio::time::advance(Duration::from_secs(5)).await;
        stream.write_all(b"P").await.expect_err("the term is over");
        assert!(!write.has_left());
    }
}
