//! Ports as workers see them: bursts of owned packet buffers in, bursts out.
//!
//! Called by the worker and by pktgen. Owns the traits that every backend implements; the backends
//! are [`memory`] (tests, benches, no libdpdk) and `dpdk` (real ports, cargo feature `dpdk`).
//! What a backend hands up is normalised: VLAN tags are in the data, never in metadata, and no
//! receive flag survives into a transmit.

mod burst;
#[cfg(feature = "dpdk")]
pub mod dpdk;
pub mod memory;

pub use burst::Burst;

/// Packets moved by one receive or transmit call at most (DPDK's usual burst).
pub const BURST_MAX: usize = 32;

/// Bytes of a frame that stages may touch, from its first byte on. A longer frame, or one in
/// several segments, is reported by [`Buffer::shape`] and never parsed.
pub const WINDOW: usize = 2048;

/// The bytes of one frame as stages see them: a fixed window, so that constant offsets need no
/// bounds check. Bytes past the frame's length are stale and must not be read as packet.
pub type Window = [u8; WINDOW];

/// How a received frame lies in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// One segment that fits the window.
    Whole,
    /// Several segments (a driver split a long frame).
    MultiSegment,
    /// One segment, longer than [`WINDOW`].
    Oversized,
}

/// Checksums that the port is asked to write on transmit. Layer lengths in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChecksumOffload {
    /// Ethernet header with its tags.
    pub l2_len: u8,
    /// IP header with options or extension headers.
    pub l3_len: u16,
    /// True for IPv4: write the header checksum too.
    pub ipv4: bool,
}

/// One packet buffer, owned: dropping it frees it to its pool, transmitting moves it away.
pub trait Buffer: Sized {
    /// The frame's bytes from the first Ethernet byte on.
    fn window(&mut self) -> &mut Window;
    /// Frame length in bytes, without FCS. At most [`WINDOW`] when the shape is whole.
    fn len(&self) -> usize;
    /// True for a frame of no bytes.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// Sets the frame length; clamped to [`WINDOW`].
    fn set_len(&mut self, len: usize);
    /// How the frame lies in memory.
    fn shape(&self) -> Shape;
    /// Asks the port to write the L3 and UDP checksums. The UDP checksum field must already hold
    /// the pseudo-header sum. Only after [`QueuePair::checksum_offload`] returned true.
    fn request_checksum(&mut self, offload: ChecksumOffload);
}

/// One RX/TX queue pair of one port, owned by one worker.
pub trait QueuePair {
    /// The buffer type of this port.
    type Buf: Buffer;

    /// Receives up to [`BURST_MAX`] packets into `burst`, which is empty on entry. Never waits.
    fn rx(&mut self, burst: &mut Burst<Self::Buf>);

    /// Transmits from the front of `burst`; returns how many went. What the port refused stays in
    /// `burst`, in order. Never retries.
    fn tx(&mut self, burst: &mut Burst<Self::Buf>) -> usize;

    /// Frees all buffers of `burst`, which this port received, at once.
    fn free(&mut self, burst: &mut Burst<Self::Buf>) {
        burst.clear();
    }

    /// A fresh buffer from the worker's pool, length 0, for packets that the worker originates.
    /// `None` when the pool is empty.
    fn alloc(&mut self) -> Option<Self::Buf>;

    /// Adds up to `count` fresh buffers, each as by [`QueuePair::alloc`], to the end of `burst`; returns how
    /// many: fewer when the burst is full or the pool empty.
    fn alloc_burst(&mut self, burst: &mut Burst<Self::Buf>, count: usize) -> usize {
        let wanted = count.min(burst.free());
        for done in 0..wanted {
            let Some(buffer) = self.alloc() else { return done };
            // There is room, so none comes back.
            let _ = burst.push(buffer);
        }
        wanted
    }

    /// Received packets that were freed unseen, since no window fits their buffer. Since start.
    fn unusable(&self) -> u64 {
        0
    }

    /// The port's MAC address.
    fn mac(&self) -> [u8; 6];

    /// True when the port writes IPv4 and UDP checksums on transmit.
    fn checksum_offload(&self) -> bool;
}
