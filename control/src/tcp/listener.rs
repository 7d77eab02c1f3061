//! Accepts connections to port 53 within the limits. Started by the TCP thread, inside its namespace.

use super::connection::{self, Shared};
use super::counters::Connection;
use super::limits::Limit;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::rc::Rc;
use std::time::{Duration, Instant};
use tokio::net::{TcpListener, TcpSocket};

/// The port that DNS is served on.
const PORT: u16 = dataplane::stages::classify::DNS_PORT;
/// Connections that the kernel holds for `accept`; beyond it answers SYN by cookies.
const BACKLOG: u32 = 1024;
/// Pause when the process has no descriptor left.
const NO_DESCRIPTOR: Duration = Duration::from_millis(50);

/// One socket for both families, on every address; without IPv6 in the kernel, for IPv4.
///
/// # Errors
/// When the kernel refuses.
pub(super) fn open() -> io::Result<TcpListener> {
    let (socket, address) = match TcpSocket::new_v6() {
        Ok(socket) => (socket, SocketAddr::from((Ipv6Addr::UNSPECIFIED, PORT))),
        Err(_) => (
            TcpSocket::new_v4()?,
            SocketAddr::from((Ipv4Addr::UNSPECIFIED, PORT)),
        ),
    };
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// Accepts until dropped. Must run inside a `LocalSet`.
pub(super) async fn accept(listener: TcpListener, shared: Rc<Shared>) {
    loop {
        let (stream, peer) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                // A client that was gone again is no reason to wait; having no descriptor is.
                if !matches!(
                    error.kind(),
                    io::ErrorKind::ConnectionAborted | io::ErrorKind::ConnectionReset
                ) {
                    tracing::debug!(%error, "cannot accept a DNS connection");
                    tokio::time::sleep(NO_DESCRIPTOR).await;
                }
                continue;
            }
        };
        let client = peer.ip().to_canonical();
        let mut connections = shared.connections.borrow_mut();
        let entered = connections.enter(client, Instant::now());
        shared.tally.set_open(connections.len());
        drop(connections);
        let counts = &shared.tally.connections;
        match entered {
            Ok(admitted) => {
                counts.bump(Connection::Accepted);
                match admitted.evicted {
                    Some(Limit::Client) => counts.bump(Connection::EvictedClient),
                    Some(Limit::Total) => counts.bump(Connection::EvictedTotal),
                    None => {}
                }
                tokio::task::spawn_local(connection::serve(shared.clone(), stream, client, admitted));
            }
            Err(Limit::Client) => counts.bump(Connection::RefusedClient),
            Err(Limit::Total) => counts.bump(Connection::RefusedTotal),
        }
    }
}
