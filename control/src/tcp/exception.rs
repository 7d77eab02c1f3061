//! Packets between the workers' rings and the kernel's TCP: a punted frame goes, without what stands before its
//! IP header, into the TUN; a packet from the TUN goes, with what stood before the client's last, to the worker
//! that the client reaches.
//!
//! [`Sink`] is the publisher's end: it takes packets at a bounded rate and lets the rest wait in the workers'
//! rings. So a flood costs control a bounded share of a CPU and a worker no more than a full ring.

use super::counters::{Punted, Sent, Tally};
use super::frame::{self, Refused};
use super::neighbours::{Neighbours, Way};
use crate::publish::{Injector, PuntSink, PuntedPacket};
use std::cell::RefCell;
use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::sync::Arc;
use std::time::Instant;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::mpsc::{Receiver, Sender, channel};

/// Packets between the publisher's thread and the TCP thread at most.
const QUEUE: usize = 256;
/// Packets handled in one go before other tasks have their turn.
const BATCH: usize = 64;
/// Share of a second's packets that may come at once.
const BURST: f64 = 0.02;
/// Longest packet that the interface can give: more than its MTU ever is.
const PACKET_MAX: usize = 65_536;

/// A frame on its way to the TCP thread.
pub(super) struct Copied {
    worker: usize,
    port: u8,
    frame: Box<[u8]>,
}

/// The TCP thread's end of the way that starts at a [`Sink`].
pub struct Inbox(pub(super) Receiver<Copied>);

/// Takes punted packets for the TCP thread, at a bounded rate.
pub struct Sink {
    queue: Sender<Copied>,
    bucket: Bucket,
}

/// The two ends: for the publisher, and for [`super::start`]. `rate`: packets a second.
pub fn queue(rate: u32) -> (Sink, Inbox) {
    let (queue, inbox) = channel(QUEUE);
    let bucket = Bucket::new(rate, Instant::now());
    (Sink { queue, bucket }, Inbox(inbox))
}

impl PuntSink for Sink {
    fn ready(&mut self) -> bool {
        // A closed queue takes all, and they are gone: the appliance is stopping.
        (self.queue.capacity() > 0 || self.queue.is_closed()) && self.bucket.has(Instant::now())
    }

    fn take(&mut self, packet: PuntedPacket<'_>) {
        self.bucket.spend();
        let copied = Copied {
            worker: packet.worker,
            port: packet.port,
            frame: packet.frame.into(),
        };
        // `ready` saw room, and this is the only sender; closed, see there.
        let _ = self.queue.try_send(copied);
    }
}

/// A token bucket.
struct Bucket {
    rate: f64,
    most: f64,
    tokens: f64,
    filled: Instant,
}

impl Bucket {
    fn new(rate: u32, now: Instant) -> Self {
        let rate = f64::from(rate);
        let most = (rate * BURST).max(1.0);
        Self {
            rate,
            most,
            tokens: most,
            filled: now,
        }
    }

    fn has(&mut self, now: Instant) -> bool {
        let passed = now.saturating_duration_since(self.filled).as_secs_f64();
        self.tokens = (self.tokens + passed * self.rate).min(self.most);
        self.filled = now;
        self.tokens >= 1.0
    }

    fn spend(&mut self) {
        self.tokens -= 1.0;
    }
}

/// Gives punted packets to the kernel until the publisher ends.
pub(super) async fn forward(
    mut inbox: Inbox,
    tun: &AsyncFd<File>,
    neighbours: &RefCell<Neighbours>,
    tally: &Tally,
) {
    let mut batch = Vec::with_capacity(BATCH);
    while inbox.0.recv_many(&mut batch, BATCH).await > 0 {
        let now = Instant::now();
        for copied in batch.drain(..) {
            tally.punted.bump(forward_one(&copied, tun, neighbours, now));
        }
        tokio::task::yield_now().await;
    }
}

fn forward_one(
    copied: &Copied,
    tun: &AsyncFd<File>,
    neighbours: &RefCell<Neighbours>,
    now: Instant,
) -> Punted {
    let inbound = match frame::read(&copied.frame) {
        Ok(inbound) => inbound,
        Err(Refused::Malformed) => return Punted::Malformed,
        Err(Refused::NotTcp) => return Punted::NotTcp,
    };
    let way = Way {
        worker: copied.worker,
        port: copied.port,
        link: inbound.link,
    };
    if let Some(flow) = inbound.flow {
        neighbours.borrow_mut().heard(flow, way, now);
    }
    match tun.get_ref().write(inbound.packet) {
        Ok(len) if len == inbound.packet.len() => Punted::Forwarded,
        Ok(_) => Punted::NotTaken,
        Err(error) => {
            tracing::debug!(%error, "the TUN interface refused a packet");
            Punted::NotTaken
        }
    }
}

/// Sends the kernel's packets on their way until the interface is gone.
pub(super) async fn send_back<S>(
    tun: &AsyncFd<File>,
    neighbours: &RefCell<Neighbours>,
    injector: &Injector<S>,
    tally: &Arc<Tally>,
) {
    let mut packet = vec![0; PACKET_MAX];
    loop {
        for _ in 0..BATCH {
            let read = tun.async_io(Interest::READABLE, |mut file| file.read(&mut packet));
            let len = match read.await {
                Ok(len) => len,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => {
                    tracing::error!(%error, "the TUN interface cannot be read: no DNS over TCP until a restart");
                    return;
                }
            };
            let fate = send_one(&packet[..len], neighbours, injector);
            tally.sent.bump(fate);
        }
        tokio::task::yield_now().await;
    }
}

fn send_one<S>(packet: &[u8], neighbours: &RefCell<Neighbours>, injector: &Injector<S>) -> Sent {
    let Some((flow, proved)) = frame::read_outbound(packet) else {
        return Sent::NotTcp;
    };
    let Some(way) = neighbours.borrow_mut().way(flow, proved, Instant::now()) else {
        return Sent::UnknownNeighbour;
    };
    // An error means that the publisher has stopped: so does everything.
    let _ = injector.inject(way.worker, way.port, way.link.frame(packet));
    Sent::Injected
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn the_rate_holds_and_a_full_queue_takes_nothing() {
        let start = Instant::now();
        let mut bucket = Bucket::new(1000, start);
        let spent = |bucket: &mut Bucket, at: Duration| {
            let mut n = 0;
            while bucket.has(start + at) {
                bucket.spend();
                n += 1;
            }
            n
        };
        // 20 at once, then one a millisecond, and never more than 20 saved up.
        assert_eq!(spent(&mut bucket, Duration::ZERO), 20);
        assert_eq!(spent(&mut bucket, Duration::from_millis(5)), 5);
        assert_eq!(spent(&mut bucket, Duration::from_secs(5)), 20);

        let (mut sink, mut inbox) = queue(1_000_000);
        let packet = PuntedPacket {
            worker: 1,
            port: 2,
            frame: b"frame",
        };
        let mut taken = 0;
        while sink.ready() {
            sink.take(packet);
            taken += 1;
        }
        assert_eq!(taken, QUEUE);
        let first = inbox.0.try_recv().unwrap();
        assert_eq!((first.worker, first.port, &*first.frame), (1, 2, &b"frame"[..]));
        assert!(sink.ready());
    }
}
