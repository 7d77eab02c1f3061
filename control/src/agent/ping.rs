//! One probe: an ICMP echo, or a TCP handshake. Called by `measure`, which paces them.
//!
//! Echoes go by unprivileged ICMP sockets where the kernel allows them (`net.ipv4.ping_group_range`), else by raw
//! sockets (CAP_NET_RAW). A TCP reset is a reply: it came all the way.

use dataplane::wire::checksum::Sum;
use socket2::{Domain, Protocol, Socket, Type};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};
use tokio::net::{TcpSocket, UdpSocket};

/// Longest datagram that is read: our echoes have 16 bytes, behind an IPv4 header of 60 at most.
const DATAGRAM_MAX: usize = 256;

/// What came of a probe.
#[derive(Debug)]
pub(super) enum Reply {
    /// A reply, after so long.
    After(Duration),
    /// None in time, or a router's that it cannot get there.
    None,
    /// This host cannot send such probes.
    Cannot(io::Error),
}

/// Whether the socket is raw: the kernel then neither fills in the checksum nor strips the IPv4 header.
async fn open(address: IpAddr) -> io::Result<(UdpSocket, bool)> {
    let domain = Domain::for_address(SocketAddr::new(address, 0));
    let protocol = if address.is_ipv4() {
        Protocol::ICMPV4
    } else {
        Protocol::ICMPV6
    };
    let plain = Socket::new(domain, Type::DGRAM, Some(protocol)).map(|socket| (socket, false));
    let (socket, raw) =
        plain.or_else(|_| Ok::<_, io::Error>((Socket::new(domain, Type::RAW, Some(protocol))?, true)))?;
    socket.set_nonblocking(true)?;
    let socket = UdpSocket::from_std(socket.into())?;
    // The kernel hands over what comes from there alone.
    socket.connect(SocketAddr::new(address, 0)).await?;
    Ok((socket, raw))
}

/// Sends one echo request and waits for its reply (RFC 792, RFC 4443).
pub(super) async fn echo(address: IpAddr, timeout: Duration) -> Reply {
    let (socket, raw) = match open(address).await {
        Ok(opened) => opened,
        Err(error) => return unsent(error),
    };
    let v4 = address.is_ipv4();
    let (request, reply) = if v4 { (8, 0) } else { (128, 129) };
    let token = fastrand::u64(..).to_be_bytes();
    let mut packet = [0; 16];
    packet[0] = request;
    packet[4..6].copy_from_slice(&token[..2]);
    packet[8..].copy_from_slice(&token);
    if v4 {
        let sum = Sum::of_16(packet).checksum();
        packet[2..4].copy_from_slice(&sum);
    }
    // The kernel fills in the checksum of ICMPv6 (RFC 3542 section 3.1).
    let start = Instant::now();
    if let Err(error) = socket.send(&packet).await {
        return unsent(error);
    }
    let answer = async {
        let mut buffer = [0; DATAGRAM_MAX];
        loop {
            let Ok(len) = socket.recv(&mut buffer).await else {
                return None;
            };
            let passed = start.elapsed();
            let skip = if v4 && raw {
                usize::from(buffer[0] & 15) * 4
            } else {
                0
            };
            let message = buffer[..len].get(skip..).unwrap_or_default();
            // Others' echoes reach raw sockets as well.
            if message.first() == Some(&reply) && message.get(8..16) == Some(&token) {
                return Some(passed);
            }
        }
    };
    match tokio::time::timeout(timeout, answer).await {
        Ok(Some(after)) => Reply::After(after),
        _ => Reply::None,
    }
}

/// Shakes hands with a TCP port, or is refused.
pub(super) async fn handshake(address: IpAddr, port: u16, timeout: Duration) -> Reply {
    let socket = if address.is_ipv4() {
        TcpSocket::new_v4()
    } else {
        TcpSocket::new_v6()
    };
    let socket = match socket {
        Ok(socket) => socket,
        Err(error) => return Reply::Cannot(error),
    };
    // Closed by a reset: no connection lingers at either end.
    if let Err(error) = socket.set_zero_linger() {
        return Reply::Cannot(error);
    }
    let start = Instant::now();
    match tokio::time::timeout(timeout, socket.connect(SocketAddr::new(address, port))).await {
        Ok(Ok(_)) => Reply::After(start.elapsed()),
        Ok(Err(error)) if error.kind() == io::ErrorKind::ConnectionRefused => Reply::After(start.elapsed()),
        Ok(Err(error)) => unsent(error),
        Err(_) => Reply::None,
    }
}

/// No way there is no reply; what this host may not or cannot do is told apart.
fn unsent(error: io::Error) -> Reply {
    match error.raw_os_error() {
        Some(
            libc::EHOSTUNREACH | libc::ENETUNREACH | libc::ECONNREFUSED | libc::ETIMEDOUT | libc::EHOSTDOWN,
        ) => Reply::None,
        _ => Reply::Cannot(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{Ipv4Addr, Ipv6Addr};

    const AMPLE: Duration = Duration::from_secs(20);

    #[tokio::test]
    async fn loopback_replies_by_icmp_of_both_families() {
        for address in [
            IpAddr::from(Ipv4Addr::LOCALHOST),
            IpAddr::from(Ipv6Addr::LOCALHOST),
        ] {
            let reply = echo(address, AMPLE).await;
            assert!(
                matches!(reply, Reply::After(after) if after < AMPLE),
                "{address}: {reply:?}"
            );
        }
    }

    #[tokio::test]
    async fn an_open_port_and_a_closed_one_reply() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("bound");
        let port = listener.local_addr().expect("an address").port();
        let open = handshake(Ipv4Addr::LOCALHOST.into(), port, AMPLE).await;
        assert!(matches!(open, Reply::After(_)), "{open:?}");
        drop(listener);
        let closed = handshake(Ipv4Addr::LOCALHOST.into(), port, AMPLE).await;
        assert!(matches!(closed, Reply::After(_)), "{closed:?}");
    }
}
