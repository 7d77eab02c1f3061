//! One client's connection: reads queries, writes replies, ends (RFC 7766). A task on the TCP thread for each;
//! `listener` starts it.
//!
//! Replies go out in the order of the queries, since each is ready at once. While replies wait for the client
//! to take them nothing is read, so a connection never holds more than one message and [`OUT_MAX`] bytes.

use super::answer::Answerer;
use super::counters::{Connection, Tally};
use super::framing::{BadLength, Framer};
use super::limits::{Admitted, Connections};
use std::cell::RefCell;
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep_until, timeout};

/// Replies gathered before they are written, bytes, less the last one.
const OUT_MAX: usize = 16 * 1024;
/// Room for one read, bytes.
const READ: usize = 4096;

/// What all connections share.
pub(super) struct Shared {
    pub(super) answerer: RefCell<Answerer>,
    pub(super) connections: RefCell<Connections>,
    pub(super) tally: Arc<Tally>,
    /// Longest wait for a whole query, or for the client to take its replies.
    pub(super) idle: Duration,
}

/// Serves one connection to its end.
pub(super) async fn serve(shared: Rc<Shared>, stream: TcpStream, client: IpAddr, admitted: Admitted) {
    let end = talk(&shared, stream, client, &admitted).await;
    let mut connections = shared.connections.borrow_mut();
    connections.left(admitted.id);
    shared.tally.set_open(connections.len());
    if let Some(end) = end {
        shared.tally.connections.bump(end);
    }
}

/// How it ended; `None` if it was told to close, which is counted where it is told.
async fn talk(
    shared: &Shared,
    mut stream: TcpStream,
    client: IpAddr,
    admitted: &Admitted,
) -> Option<Connection> {
    // Small replies must not wait for acknowledgments of others. Fails only on a connection that is gone.
    let _ = stream.set_nodelay(true);
    let (mut framer, mut out) = (Framer::default(), Vec::new());
    // A query restarts the clock when it is whole; bytes alone do not.
    let mut since = Instant::now();
    loop {
        loop {
            match framer.next_message() {
                Ok(Some(message)) => {
                    shared.answerer.borrow_mut().answer(message, client, &mut out);
                    since = Instant::now();
                }
                Ok(None) => break,
                Err(BadLength) => {
                    let _ = flush(&mut stream, &mut out, shared.idle).await;
                    return Some(Connection::BadLength);
                }
            }
            if out.len() >= OUT_MAX && !flush(&mut stream, &mut out, shared.idle).await {
                return Some(Connection::Failed);
            }
        }
        if !flush(&mut stream, &mut out, shared.idle).await {
            return Some(Connection::Failed);
        }
        let waits = |since| shared.connections.borrow_mut().waits(admitted.id, since);
        waits(Some(since.into_std()));
        let input = framer.input();
        input.reserve(READ);
        tokio::select! {
            biased;
            () = admitted.close.notified() => return None,
            read = stream.read_buf(input) => match read {
                // Also after a half close: what was asked before it has its replies by now.
                Ok(0) => return Some(Connection::ClosedByClient),
                Ok(_) => {}
                Err(_) => return Some(Connection::Failed),
            },
            () = sleep_until(since + shared.idle) => return Some(Connection::Idle),
        }
        waits(None);
    }
}

/// Writes all that waits; false when the client does not take it in time, or is gone.
async fn flush(stream: &mut TcpStream, out: &mut Vec<u8>, limit: Duration) -> bool {
    if out.is_empty() {
        return true;
    }
    let written = timeout(limit, stream.write_all(out)).await;
    out.clear();
    out.shrink_to(READ);
    matches!(written, Ok(Ok(())))
}
