//! The listening sockets of the guard.
//!
//! Owns: accepting IPv4 and IPv6 on one socket. Must not know: what is served there.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use anyhow::Context as _;
use tokio::net::TcpListener;

/// Listens at an address. `[::]` accepts connections over IPv6 and IPv4; without IPv6 it stands for every IPv4 address.
pub(super) async fn at(address: SocketAddr) -> anyhow::Result<TcpListener> {
    let bound = match TcpListener::bind(address).await {
        Err(error)
            if address.ip() == IpAddr::V6(Ipv6Addr::UNSPECIFIED)
                && matches!(error.raw_os_error(), Some(NO_FAMILY | NO_ADDRESS)) =>
        {
            TcpListener::bind((Ipv4Addr::UNSPECIFIED, address.port())).await
        }
        bound => bound,
    };
    bound.with_context(|| format!("listening at {address}"))
}

/// Linux's EAFNOSUPPORT: the kernel has no IPv6.
const NO_FAMILY: i32 = 97;
/// Linux's EADDRNOTAVAIL: IPv6 is switched off.
const NO_ADDRESS: i32 = 99;

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::net::TcpStream;

    #[tokio::test]
    async fn one_socket_accepts_both_address_families() {
        let listener = at("[::]:0".parse().unwrap()).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        for address in ["127.0.0.1", "::1"] {
            let address: IpAddr = address.parse().unwrap();
            let (client, server) = tokio::join!(TcpStream::connect((address, port)), listener.accept());
            assert!(client.is_ok() && server.is_ok(), "{address}");
        }
    }
}
