//! Where the guard listens.
//!
//! Owns: both families of addresses behind one. Must not know: what is served there.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use anyhow::Context as _;
use tokio::net::TcpListener;

/// `[::]` takes connections over IPv6 and IPv4; where the kernel has no IPv6, it means every address of IPv4.
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

/// EAFNOSUPPORT and EADDRNOTAVAIL of Linux: what `[::]` meets where IPv6 is not there, or switched off.
const NO_FAMILY: i32 = 97;
const NO_ADDRESS: i32 = 99;

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::net::TcpStream;

    #[tokio::test]
    async fn every_address_is_one_of_both_families() {
        let listener = at("[::]:0".parse().unwrap()).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        for address in ["127.0.0.1", "::1"] {
            let address: IpAddr = address.parse().unwrap();
            let (client, server) = tokio::join!(TcpStream::connect((address, port)), listener.accept());
            assert!(client.is_ok() && server.is_ok(), "{address}");
        }
    }
}
