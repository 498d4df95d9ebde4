//! A listening socket for the address in a flag.

use std::{
    io,
    net::{Ipv4Addr, SocketAddr},
};

use socket2::SockRef;
use tokio::net::TcpListener;

use super::ServeError;

#[derive(Clone, Debug, Eq, PartialEq)]
pub enum BindAddress {
    Off,
    /// A host (empty: all addresses) and a port (0: a free one).
    At(String, u16),
}

impl BindAddress {
    /// Parses `HOST:PORT`, `:PORT` or `0`, as in Go. The error says what to give instead.
    pub fn read(text: &str) -> Result<Self, String> {
        if text == "0" {
            return Ok(BindAddress::Off);
        }
        let (host, port) = text.rsplit_once(':').ok_or("give it as HOST:PORT or :PORT, or as 0 to turn it off")?;
        let is_bracketed = host.starts_with('[') && host.ends_with(']');
        if host.contains(':') && !is_bracketed {
            return Err("an IPv6 address needs brackets: give it as [ADDRESS]:PORT".to_owned());
        }
        let port = port.parse().map_err(|_| format!("{port:?} is not a port: give a number from 0 to 65535"))?;
        Ok(BindAddress::At(host.trim_matches(['[', ']']).to_owned(), port))
    }
}

/// Listens with a queue for `backlog` connections. Returns also the address, with the actual port for port 0; `None` if it is off.
pub async fn bind(
    flag: &str,
    address: &BindAddress,
    backlog: i32,
) -> Result<Option<(TcpListener, SocketAddr)>, ServeError> {
    let BindAddress::At(host, port) = address else {
        return Ok(None);
    };
    let failed = |error: io::Error| {
        let remedy = "give another address, or 0 to turn it off";
        ServeError::Bind(format!("{flag}: cannot listen on {host}:{port}: {error}; {remedy}"))
    };
    // No host means all addresses. An IPv6 socket also accepts IPv4.
    let name = if host.is_empty() { "::" } else { host.as_str() };
    let listener = match TcpListener::bind((name, *port)).await {
        // Without IPv6, use IPv4. But a port in use is an error, because serving only IPv4 would surprise clients.
        Err(error) if host.is_empty() && error.kind() != io::ErrorKind::AddrInUse => {
            TcpListener::bind((Ipv4Addr::UNSPECIFIED, *port)).await
        }
        bound => bound,
    };
    let listener = listener.map_err(failed)?;
    // The socket listens already: this only sets the length of the queue.
    SockRef::from(&listener).listen(backlog).map_err(failed)?;
    let address = listener.local_addr().map_err(failed)?;
    Ok(Some((listener, address)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_as_in_go() {
        let at = |host: &str, port| BindAddress::At(host.to_owned(), port);
        assert_eq!(BindAddress::read("0"), Ok(BindAddress::Off));
        assert_eq!(BindAddress::read(":8081"), Ok(at("", 8081)));
        assert_eq!(BindAddress::read("127.0.0.1:0"), Ok(at("127.0.0.1", 0)));
        assert_eq!(BindAddress::read("[::1]:80"), Ok(at("::1", 80)));
        assert!(BindAddress::read("::1:80").unwrap_err().contains("brackets"));
    }

    async fn bound(host: &str, port: u16) -> Result<(TcpListener, SocketAddr), String> {
        let address = BindAddress::At(host.to_owned(), port);
        bind("--some-flag", &address, 16).await.map(Option::unwrap).map_err(|error| error.to_string())
    }

    #[tokio::test]
    async fn without_a_host_all_addresses_are_served() {
        let (_listener, address) = bound("", 0).await.unwrap();
        assert!(address.ip().is_unspecified() && address.port() > 0);
        tokio::net::TcpStream::connect((Ipv4Addr::LOCALHOST, address.port())).await.unwrap();
        let (_named, address) = bound("localhost", 0).await.unwrap();
        assert!(address.ip().is_loopback());
    }

    #[tokio::test]
    async fn a_listen_error_names_its_flag() {
        let (_listener, taken) = bound("127.0.0.1", 0).await.unwrap();
        for host in ["127.0.0.1", ""] {
            let sentence = bound(host, taken.port()).await.unwrap_err();
            let expected = format!("--some-flag: cannot listen on {host}:{}", taken.port());
            assert!(sentence.starts_with(&expected) && sentence.contains("give another address"), "{sentence}");
        }
        let sentence = bound("host.invalid", 0).await.unwrap_err();
        assert!(sentence.starts_with("--some-flag: cannot listen on host.invalid:0"), "{sentence}");
    }

    #[tokio::test]
    async fn zero_turns_the_listener_off() {
        assert!(bind("--some-flag", &BindAddress::Off, 16).await.unwrap().is_none());
    }
}
