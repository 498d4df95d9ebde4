//! The connections for the writes of an instance: the operator's pool and gate, over streams in memory.
//!
//! A freeze acts between the two, where TLS is in a real process: after every check except that of the gate.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll, ready},
};

use http::Uri;
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::{
    client::legacy::connect::{Connected, Connection as _},
    rt::TokioIo,
};
use leadership::{
    WritePermit,
    connect::{gate, pool},
};
use tokio::time::{Sleep, sleep_until};
use tower::ServiceExt;

use crate::apiserver::{Connection, Ice};

/// A client whose writes pass the gate. `may_leave` is the rule of the gate.
pub fn gated(connection: &Connection, ice: &Ice, may_leave: fn(&WritePermit) -> bool) -> kube::Client {
    let (server, ice, log) = (connection.clone(), ice.clone(), connection.clone());
    let dial = tower::service_fn(move |_: Uri| {
        let stream = server.dial();
        async move { stream.map(|stream| Line::new(TokioIo::new(stream), |_| Connected::new(), None)) }
    });
    let connector = gate(dial, may_leave)
        .map_response(move |gated| Line::new(gated, |gated| gated.connected(), Some((ice.clone(), log.clone()))));
    kube::Client::new(pool(connector), "default")
}

/// A stream that a freeze may hold up.
struct Line<S> {
    stream: S,
    connected: fn(&S) -> Connected,
    ice: Option<(Ice, Connection)>,
    thaw: Option<Pin<Box<Sleep>>>,
}

impl<S> Line<S> {
    fn new(stream: S, connected: fn(&S) -> Connected, ice: Option<(Ice, Connection)>) -> Self {
        Line { stream, connected, ice, thaw: None }
    }

    /// Waits until no freeze prevents reads or writes.
    fn poll_melted(&mut self, cx: &mut Context<'_>, is_read: bool) -> Poll<()> {
        while let Some((ice, connection)) = &self.ice {
            let Some(frozen) = ice.frozen().filter(|frozen| frozen.is_whole || !is_read) else { break };
            connection.note_held_up();
            let thaw = self.thaw.get_or_insert_with(|| Box::pin(sleep_until(frozen.until)));
            if thaw.deadline() != frozen.until {
                thaw.as_mut().reset(frozen.until);
            }
            ready!(thaw.as_mut().poll(cx));
            self.thaw = None;
        }
        Poll::Ready(())
    }
}

impl<S> hyper_util::client::legacy::connect::Connection for Line<S> {
    fn connected(&self) -> Connected {
        (self.connected)(&self.stream)
    }
}

impl<S: Read + Unpin> Read for Line<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, into: ReadBufCursor<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_melted(cx, true));
        Pin::new(&mut self.stream).poll_read(cx, into)
    }
}

impl<S: Write + Unpin> Write for Line<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        ready!(self.poll_melted(cx, false));
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
