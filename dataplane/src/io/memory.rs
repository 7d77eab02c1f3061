//! A port in memory, with a wire for the test side. Used by tests and benches of the worker and of
//! pktgen; needs no libdpdk. [`MemoryPort`] is what a worker owns, [`MemoryWire`] what a test
//! injects frames into and takes transmitted frames from. All memory is taken at construction:
//! receive, transmit and the recycling of buffers never touch the heap.

#![allow(unsafe_code)] // a buffer moves its box back to the pool when it is dropped

use super::{BURST_MAX, Buffer, Burst, ChecksumOffload, QueuePair, Shape, WINDOW, Window};
use core::mem::ManuallyDrop;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// How a memory port is made.
#[derive(Clone, Copy, Debug)]
pub struct MemoryConfig {
    /// Buffers in the pool.
    pub buffers: usize,
    /// Frames that each direction of the wire holds: one more injected is refused, one more
    /// transmitted is left with the sender.
    pub frames: usize,
    /// The port's MAC address.
    pub mac: [u8; 6],
    /// Whether the port writes checksums on transmit, as some NICs do.
    pub checksum_offload: bool,
    /// Written over the window past the end of each received frame, to show who reads there.
    pub stale: Option<u8>,
}

impl Default for MemoryConfig {
    fn default() -> Self {
        Self {
            buffers: 256,
            frames: 256,
            mac: [0x02, 0, 0, 0, 0, 0x01],
            checksum_offload: false,
            stale: None,
        }
    }
}

/// What both sides share. One lock for the pool, one for the wire; each is taken once a burst.
struct Shared {
    pool: Mutex<Pool>,
    wire: Mutex<Wire>,
}

#[derive(Default)]
struct Pool {
    /// Free buffers. Each holds a handle to this pool, a cycle that the port's drop opens. None may be dropped while
    /// the pool is locked.
    free: Vec<MemoryBuffer>,
    closed: bool,
    empty: u64,
}

struct Wire {
    to_port: Ring,
    from_port: Ring,
    replay: Option<Replay>,
    /// Received next, the last one first.
    staged: Vec<MemoryBuffer>,
    tx_limit: Option<usize>,
    discard: bool,
    sent: u64,
}

/// Frames handed to the port over and over.
struct Replay {
    frames: Vec<Vec<u8>>,
    next: usize,
}

/// A frame outside of any pool.
#[derive(Clone)]
struct Frame {
    bytes: Box<Window>,
    len: usize,
    shape: Shape,
    checksum: Option<ChecksumOffload>,
}

/// A bounded queue of frames whose storage is reused.
struct Ring {
    used: VecDeque<Frame>,
    unused: Vec<Frame>,
}

impl Ring {
    fn new(frames: usize) -> Self {
        let blank = Frame {
            bytes: Box::new([0; WINDOW]),
            len: 0,
            shape: Shape::Whole,
            checksum: None,
        };
        Self {
            used: VecDeque::with_capacity(frames),
            unused: vec![blank; frames],
        }
    }

    /// Appends a copy. `bytes` may be longer than the window; what does not fit is cut.
    fn push(&mut self, bytes: &[u8], len: usize, shape: Shape, checksum: Option<ChecksumOffload>) -> bool {
        let Some(mut frame) = self.unused.pop() else {
            return false;
        };
        let fits = bytes.len().min(WINDOW);
        frame.bytes[..fits].copy_from_slice(&bytes[..fits]);
        (frame.len, frame.shape, frame.checksum) = (len, shape, checksum);
        self.used.push_back(frame);
        true
    }
}

/// The storage of one buffer.
struct Cell {
    window: Window,
    len: usize,
    shape: Shape,
    checksum: Option<ChecksumOffload>,
    shared: Arc<Shared>,
}

impl Shared {
    fn pool(&self) -> MutexGuard<'_, Pool> {
        self.pool.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wire(&self) -> MutexGuard<'_, Wire> {
        self.wire.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A packet buffer of a [`MemoryPort`], one word, returned to the port's pool on drop.
pub struct MemoryBuffer(ManuallyDrop<Box<Cell>>);

impl MemoryBuffer {
    fn new(cell: Box<Cell>) -> Self {
        Self(ManuallyDrop::new(cell))
    }

    /// The frame: the bytes up to its length, or the window if it is longer.
    pub fn frame(&self) -> &[u8] {
        &self.0.window[..self.0.len.min(WINDOW)]
    }
}

impl Drop for MemoryBuffer {
    fn drop(&mut self) {
        // SAFETY: this is the one drop of `self`, and its field is not used after it.
        let cell = unsafe { ManuallyDrop::take(&mut self.0) };
        let shared = Arc::clone(&cell.shared);
        let mut pool = shared.pool();
        if !pool.closed {
            pool.free.push(MemoryBuffer::new(cell));
        }
    }
}

impl Buffer for MemoryBuffer {
    #[inline(always)]
    fn window(&mut self) -> &mut Window {
        &mut self.0.window
    }

    #[inline(always)]
    fn len(&self) -> usize {
        self.0.len
    }

    #[inline(always)]
    fn set_len(&mut self, len: usize) {
        self.0.len = len.min(WINDOW);
    }

    #[inline(always)]
    fn shape(&self) -> Shape {
        self.0.shape
    }

    fn request_checksum(&mut self, offload: ChecksumOffload) {
        self.0.checksum = Some(offload);
    }
}

/// The port that a worker owns.
pub struct MemoryPort {
    shared: Arc<Shared>,
    config: MemoryConfig,
}

/// The test side of a [`MemoryPort`]. Clones speak of the same port.
#[derive(Clone)]
pub struct MemoryWire {
    shared: Arc<Shared>,
}

/// A frame that the port transmitted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sent {
    /// The frame, checksums written where the port was asked to.
    pub bytes: Vec<u8>,
    /// The request for checksums that came with it.
    pub checksum: Option<ChecksumOffload>,
}

impl MemoryPort {
    /// A port and its wire. Takes all memory that they will ever use, but for replayed frames.
    pub fn new(config: MemoryConfig) -> (MemoryPort, MemoryWire) {
        let shared = Arc::new(Shared {
            pool: Mutex::new(Pool {
                free: Vec::with_capacity(config.buffers),
                ..Pool::default()
            }),
            wire: Mutex::new(Wire {
                to_port: Ring::new(config.frames),
                from_port: Ring::new(config.frames),
                replay: None,
                staged: Vec::with_capacity(config.buffers),
                tx_limit: None,
                discard: false,
                sent: 0,
            }),
        });
        for _ in 0..config.buffers {
            let cell = Cell {
                window: [0; WINDOW],
                len: 0,
                shape: Shape::Whole,
                checksum: None,
                shared: Arc::clone(&shared),
            };
            shared.pool().free.push(MemoryBuffer::new(Box::new(cell)));
        }
        let wire = MemoryWire {
            shared: Arc::clone(&shared),
        };
        (MemoryPort { shared, config }, wire)
    }
}

impl Drop for MemoryPort {
    /// Frees the pool. Buffers still held elsewhere are freed by their own drop.
    fn drop(&mut self) {
        let staged = core::mem::take(&mut self.shared.wire().staged);
        let free = {
            let mut pool = self.shared.pool();
            pool.closed = true;
            core::mem::take(&mut pool.free)
        };
        drop((staged, free));
    }
}

impl QueuePair for MemoryPort {
    type Buf = MemoryBuffer;

    fn rx(&mut self, burst: &mut Burst<MemoryBuffer>) {
        let mut wire = self.shared.wire();
        if !wire.staged.is_empty() {
            burst.take_last(&mut wire.staged);
            return;
        }
        let waiting = match &wire.replay {
            Some(replay) if replay.frames.is_empty() => 0,
            Some(_) => BURST_MAX,
            None => wire.to_port.used.len(),
        };
        let wanted = waiting.min(burst.free());
        if wanted == 0 {
            return;
        }
        let mut pool = self.shared.pool();
        for _ in 0..wanted {
            let Some(mut buffer) = pool.free.pop() else {
                // As a NIC without fresh descriptors: the frame waits.
                pool.empty += 1;
                return;
            };
            let cell = &mut buffer.0;
            let fits = if let Some(replay) = &mut wire.replay {
                let bytes = &replay.frames[replay.next];
                replay.next = if replay.next + 1 == replay.frames.len() {
                    0
                } else {
                    replay.next + 1
                };
                cell.window[..bytes.len()].copy_from_slice(bytes);
                (cell.len, cell.shape) = (bytes.len(), Shape::Whole);
                bytes.len()
            } else if let Some(frame) = wire.to_port.used.pop_front() {
                let fits = frame.len.min(WINDOW);
                cell.window[..fits].copy_from_slice(&frame.bytes[..fits]);
                (cell.len, cell.shape) = (frame.len, frame.shape);
                wire.to_port.unused.push(frame);
                fits
            } else {
                pool.free.push(buffer);
                return;
            };
            if let Some(stale) = self.config.stale {
                cell.window[fits..].fill(stale);
            }
            cell.checksum = None;
            // There is room for `wanted` buffers, so none comes back.
            if let Err(buffer) = burst.push(buffer) {
                pool.free.push(buffer);
                return;
            }
        }
    }

    fn tx(&mut self, burst: &mut Burst<MemoryBuffer>) -> usize {
        let mut wire = self.shared.wire();
        let mut pool = self.shared.pool();
        let room = if wire.discard {
            usize::MAX
        } else {
            wire.from_port.unused.len()
        };
        let count = burst.len().min(room).min(wire.tx_limit.unwrap_or(usize::MAX));
        if wire.discard {
            burst.give_first(count, &mut pool.free);
        } else {
            for mut buffer in burst.drain().take(count) {
                let cell = &mut buffer.0;
                let fits = cell.len.min(WINDOW);
                if let Some(offload) = cell.checksum {
                    write_checksums(&mut cell.window[..fits], offload);
                }
                wire.from_port
                    .push(&cell.window[..fits], cell.len, cell.shape, cell.checksum);
                pool.free.push(buffer);
            }
        }
        wire.sent += count as u64;
        count
    }

    fn free(&mut self, burst: &mut Burst<MemoryBuffer>) {
        burst.give_first(burst.len(), &mut self.shared.pool().free);
    }

    fn alloc(&mut self) -> Option<MemoryBuffer> {
        let mut pool = self.shared.pool();
        let Some(mut buffer) = pool.free.pop() else {
            pool.empty += 1;
            return None;
        };
        let cell = &mut buffer.0;
        (cell.len, cell.shape, cell.checksum) = (0, Shape::Whole, None);
        Some(buffer)
    }

    fn mac(&self) -> [u8; 6] {
        self.config.mac
    }

    fn checksum_offload(&self) -> bool {
        self.config.checksum_offload
    }
}

impl MemoryWire {
    /// Gives the port a frame to receive. False when its queue is full.
    ///
    /// # Panics
    /// If the frame is longer than the window: see [`MemoryWire::inject_shaped`].
    pub fn inject(&self, frame: &[u8]) -> bool {
        assert!(
            frame.len() <= WINDOW,
            "a frame of {} bytes is not whole",
            frame.len()
        );
        self.inject_shaped(frame, Shape::Whole)
    }

    /// Gives the port a frame that it will report with this shape; the window shows what fits of it.
    pub fn inject_shaped(&self, frame: &[u8], shape: Shape) -> bool {
        self.shared.wire().to_port.push(frame, frame.len(), shape, None)
    }

    /// From now on the port receives full bursts of copies of these frames, in turn, without end,
    /// and discards what it transmits. Injected frames wait meanwhile.
    ///
    /// # Panics
    /// If a frame is longer than the window.
    pub fn replay<F: AsRef<[u8]>>(&self, frames: &[F]) {
        let frames: Vec<Vec<u8>> = frames.iter().map(|f| f.as_ref().to_vec()).collect();
        assert!(
            frames.iter().all(|f| f.len() <= WINDOW),
            "replayed frames must be whole"
        );
        let mut wire = self.shared.wire();
        wire.replay = Some(Replay { frames, next: 0 });
        wire.discard = true;
    }

    /// Fills buffers of the pool with these frames, to be received next in this order: the port then only hands over
    /// buffers, as DPDK's net_ring does. Returns how many; fewer than given when the pool is empty.
    ///
    /// # Panics
    /// If a frame is longer than the window.
    pub fn stage<F: AsRef<[u8]>>(&self, frames: &[F]) -> usize {
        let mut wire = self.shared.wire();
        let mut pool = self.shared.pool();
        let before = wire.staged.len();
        for frame in frames.iter().map(AsRef::as_ref) {
            assert!(frame.len() <= WINDOW, "staged frames must be whole");
            let Some(mut buffer) = pool.free.pop() else {
                pool.empty += 1;
                break;
            };
            let cell = &mut buffer.0;
            cell.window[..frame.len()].copy_from_slice(frame);
            (cell.len, cell.shape, cell.checksum) = (frame.len(), Shape::Whole, None);
            wire.staged.push(buffer);
        }
        let staged = wire.staged.len() - before;
        // Behind those that wait already, which are at the end.
        wire.staged.rotate_left(before);
        wire.staged[..staged].reverse();
        staged
    }

    /// Ends [`MemoryWire::replay`]: transmitted frames are kept again.
    pub fn stop_replay(&self) {
        let mut wire = self.shared.wire();
        wire.replay = None;
        wire.discard = false;
    }

    /// At most so many frames go in each transmit call from now on; `None`: no limit.
    pub fn limit_tx(&self, frames_per_call: Option<usize>) {
        self.shared.wire().tx_limit = frames_per_call;
    }

    /// Whether transmitted frames are only counted, not kept.
    pub fn discard_sent(&self, discard: bool) {
        self.shared.wire().discard = discard;
    }

    /// The oldest transmitted frame that was not taken yet.
    pub fn take(&self) -> Option<Sent> {
        let mut wire = self.shared.wire();
        let frame = wire.from_port.used.pop_front()?;
        let bytes = frame.bytes[..frame.len.min(WINDOW)].to_vec();
        let checksum = frame.checksum;
        wire.from_port.unused.push(frame);
        Some(Sent { bytes, checksum })
    }

    /// The bytes of all transmitted frames that were not taken yet, oldest first.
    pub fn take_all(&self) -> Vec<Vec<u8>> {
        core::iter::from_fn(|| self.take())
            .map(|sent| sent.bytes)
            .collect()
    }

    /// Frames that wait to be received.
    pub fn waiting(&self) -> usize {
        self.shared.wire().to_port.used.len()
    }

    /// Frames transmitted since the port was made.
    pub fn sent(&self) -> u64 {
        self.shared.wire().sent
    }

    /// Free buffers in the port's pool.
    pub fn pool_free(&self) -> usize {
        self.shared.pool().free.len()
    }

    /// How often a buffer was wanted and the pool was empty.
    pub fn pool_empty(&self) -> u64 {
        self.shared.pool().empty
    }
}

/// Does what a NIC does: the IPv4 header checksum, and the UDP checksum over the pseudo-header sum
/// that the field holds and the datagram (RFC 768, RFC 1071). Nothing if the lengths do not fit.
fn write_checksums(frame: &mut [u8], offload: ChecksumOffload) {
    let l3 = usize::from(offload.l2_len);
    let l4 = l3 + usize::from(offload.l3_len);
    if offload.ipv4
        && let Some(header) = frame.get_mut(l3..l4).filter(|h| h.len() >= 20)
    {
        header[10..12].fill(0);
        let sum = !ones_sum(header);
        header[10..12].copy_from_slice(&sum.to_be_bytes());
    }
    let length = frame
        .get(l4 + 4..l4 + 6)
        .map(|b| usize::from(u16::from_be_bytes([b[0], b[1]])));
    if let Some(length) = length
        && let Some(datagram) = frame.get_mut(l4..l4 + length).filter(|d| d.len() >= 8)
    {
        let sum = match !ones_sum(datagram) {
            0 => 0xffff,
            sum => sum,
        };
        datagram[6..8].copy_from_slice(&sum.to_be_bytes());
    }
}

/// The ones' complement sum of 16-bit words, the last byte padded with zero (RFC 1071).
fn ones_sum(bytes: &[u8]) -> u16 {
    let mut sum = bytes
        .chunks(2)
        .map(|pair| u32::from(u16::from_be_bytes([pair[0], pair.get(1).copied().unwrap_or(0)])))
        .sum::<u32>();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

#[cfg(test)]
mod tests;
