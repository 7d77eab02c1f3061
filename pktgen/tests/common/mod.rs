//! A server at the far end of a memory port, polled by the port itself: what is transmitted is shown to
//! it at once, what it sends is received on the next turn. One thread, no time of its own.

use dataplane::io::memory::{MemoryConfig, MemoryPort, MemoryWire};
use dataplane::io::{Buffer, Burst, QueuePair};
use pktgen::clock::Clock;

pub(crate) const CLIENT_MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];
pub(crate) const SERVER_MAC: [u8; 6] = [2, 0, 0, 0, 0, 2];

/// Sees each frame that is transmitted; may inject frames at any time.
pub(crate) trait Server {
    /// A frame arrives.
    fn frame(&mut self, frame: &mut [u8; 2048], len: usize, wire: &MemoryWire);
    /// A turn of the generator begins.
    fn turn(&mut self, _wire: &MemoryWire) {}
}

/// A port with a server behind it.
pub(crate) struct Served<S> {
    port: MemoryPort,
    pub(crate) wire: MemoryWire,
    pub(crate) server: S,
    takes: usize,
}

impl<S> Served<S> {
    pub(crate) fn new(server: S) -> Self {
        let (port, wire) = MemoryPort::new(MemoryConfig {
            mac: CLIENT_MAC,
            stale: Some(0xee),
            ..MemoryConfig::default()
        });
        wire.discard_sent(true);
        Self {
            port,
            wire,
            server,
            takes: usize::MAX,
        }
    }

    /// The port takes so many frames a call at most.
    #[allow(dead_code, reason = "not every test limits the port")]
    pub(crate) fn limit(&mut self, takes: usize) {
        self.takes = takes;
        self.wire.limit_tx(Some(takes));
    }
}

impl<S: Server> QueuePair for Served<S> {
    type Buf = <MemoryPort as QueuePair>::Buf;

    fn rx(&mut self, burst: &mut Burst<Self::Buf>) {
        self.server.turn(&self.wire);
        self.port.rx(burst);
    }

    fn tx(&mut self, burst: &mut Burst<Self::Buf>) -> usize {
        // The memory port takes all or, limited, the first few: those are what the server sees.
        let takes = burst.len().min(self.takes);
        for buffer in burst.iter_mut().take(takes) {
            let len = buffer.len();
            self.server.frame(buffer.window(), len, &self.wire);
        }
        self.port.tx(burst)
    }

    fn alloc(&mut self) -> Option<Self::Buf> {
        self.port.alloc()
    }

    fn mac(&self) -> [u8; 6] {
        self.port.mac()
    }

    fn checksum_offload(&self) -> bool {
        false
    }
}

/// Time that moves by a fixed step whenever it is read.
pub(crate) struct Steps {
    pub(crate) now: u64,
    pub(crate) step: u64,
}

impl Clock for Steps {
    fn now(&mut self) -> u64 {
        self.now += self.step;
        self.now
    }

    fn idle(&mut self, _until: u64) {}
}
