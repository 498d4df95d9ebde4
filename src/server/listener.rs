//! From an address on the command line to a socket that listens.

use std::{
    io,
    net::{Ipv4Addr, SocketAddr},
};

use socket2::SockRef;
use tokio::net::TcpListener;

use crate::cli::BindAddress;

/// An address cannot be listened at.
#[derive(Debug, thiserror::Error)]
#[error("{flag}: cannot listen at {host}:{port}: {source}; give another address, or 0 to serve nothing there")]
pub struct BindError {
    flag: &'static str,
    host: String,
    port: u16,
    source: io::Error,
}

/// A socket that listens.
#[derive(Debug)]
pub struct Listener {
    /// The socket.
    pub socket: TcpListener,
    /// Where it listens, with the port that was taken for port 0.
    pub address: SocketAddr,
}

impl Listener {
    /// Listens at the address that `flag` gives, where so many connections may wait to be accepted; `None` if it says not to.
    ///
    /// # Errors
    ///
    /// When the host is unknown or none of its addresses can be listened at.
    pub async fn bind(flag: &'static str, address: &BindAddress, waiting: i32) -> Result<Option<Self>, BindError> {
        let BindAddress::At { host, port } = address else {
            return Ok(None);
        };
        let failed = |source| BindError { flag, host: host.clone(), port: *port, source };
        // No host means all addresses: an IPv6 socket also takes IPv4.
        let name = if host.is_empty() { "::" } else { host.as_str() };
        let socket = match TcpListener::bind((name, *port)).await {
            // Without IPv6, IPv4 is all. A port in use is an error: half of all addresses would surprise the clients of the other half.
            Err(error) if host.is_empty() && error.kind() != io::ErrorKind::AddrInUse => {
                TcpListener::bind((Ipv4Addr::UNSPECIFIED, *port)).await
            }
            bound => bound,
        };
        let socket = socket.map_err(failed)?;
        // On a socket that listens, this only sets the length of the queue.
        SockRef::from(&socket).listen(waiting).map_err(failed)?;
        let address = socket.local_addr().map_err(failed)?;
        Ok(Some(Listener { socket, address }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn bind(host: &str, port: u16) -> Result<Listener, String> {
        let address = BindAddress::At { host: host.to_owned(), port };
        Listener::bind("--some-flag", &address, 16).await.map(Option::unwrap).map_err(|error| error.to_string())
    }

    #[tokio::test]
    async fn no_host_is_all_addresses() {
        let listener = bind("", 0).await.unwrap();
        assert!(listener.address.ip().is_unspecified() && listener.address.port() > 0);
        tokio::net::TcpStream::connect((Ipv4Addr::LOCALHOST, listener.address.port())).await.unwrap();
        let named = bind("localhost", 0).await.unwrap();
        assert!(named.address.ip().is_loopback());
    }

    #[tokio::test]
    async fn what_cannot_be_listened_at_is_said_with_its_flag() {
        let taken = bind("127.0.0.1", 0).await.unwrap();
        for host in ["127.0.0.1", ""] {
            let sentence = bind(host, taken.address.port()).await.unwrap_err();
            let expected = format!("--some-flag: cannot listen at {host}:{}", taken.address.port());
            assert!(sentence.starts_with(&expected) && sentence.contains("give another address"), "{sentence}");
        }
        let sentence = bind("host.invalid", 0).await.unwrap_err();
        assert!(sentence.starts_with("--some-flag: cannot listen at host.invalid:0"), "{sentence}");
    }

    #[tokio::test]
    async fn zero_alone_turns_it_off() {
        assert!(Listener::bind("--some-flag", &BindAddress::Off, 16).await.unwrap().is_none());
    }
}
