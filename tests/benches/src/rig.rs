//! Real DPDK ports in this process, polled by a worker on a pinned thread: what rates are measured with.

use crate::world::{POLLS_PER_TURN, measured_polls};
use anyhow::{Context, Result, anyhow, bail};
use dataplane::counters::{Counter, Kind};
use dataplane::io::BURST_MAX;
use dataplane::io::QueuePair;
use dataplane::io::dpdk::{self, DpdkQueues, Eal, EalConfig, Mempool, Port, PortConfig};
use dataplane::worker::Worker;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant};
use windrose_tests::capture;

/// The CPU that is measured on, by Windrose and testpmd in turn.
pub(crate) const CPU: usize = 0;
/// Turns between two looks at the clock: some 16,000 packets.
const TURNS: usize = 64;

/// Packet buffers of a port that replays few frames.
pub(crate) const BUFFERS: u32 = 8192;
/// What all ports that are open at one time take, bytes: two that replay 65,536 frames, a few small ones.
const MEMORY: u64 = 1 << 30;

/// EAL, with memory for all benches: a process may start it once.
///
/// # Errors
/// When EAL does not start.
pub(crate) fn eal() -> Result<Eal> {
    eal_of(MEMORY)
}

/// The same, with so many bytes.
///
/// # Errors
/// When EAL does not start.
pub(crate) fn eal_of(memory_bytes: u64) -> Result<Eal> {
    Ok(Eal::init(&EalConfig {
        name: "windrose-bench".into(),
        memory_bytes,
        ..EalConfig::default()
    })?)
}

/// Opens a port with one queue pair over `buffers` buffers of its own.
///
/// # Errors
/// What the driver says.
pub(crate) fn open(eal: &Eal, device: &str, buffers: u32) -> Result<(Port, DpdkQueues)> {
    let pool = Mempool::new(eal, buffers, None)?;
    let config = PortConfig {
        device: device.into(),
        ..PortConfig::default()
    };
    let (port, mut queues) = Port::open(eal, &config, &[pool])?;
    Ok((port, queues.pop().context("no queue pair")?))
}

/// A port that replays frames from memory without end and discards what it is given to send.
pub(crate) struct Replay {
    /// Its queue pair.
    pub(crate) queues: DpdkQueues,
    /// The pcap file.
    pub(crate) file: PathBuf,
    _port: Port,
}

/// Opens one over `buffers` buffers of its own, more than there are frames; `frames` makes them for the port's MAC
/// address. The file stays in `folder`.
///
/// # Errors
/// What the driver says.
pub(crate) fn replay(
    eal: &Eal,
    folder: &Path,
    buffers: u32,
    frames: impl FnOnce([u8; 6]) -> Vec<Vec<u8>>,
) -> Result<Replay> {
    static NEXT: AtomicU8 = AtomicU8::new(0);
    // The frames are needed to open the port, and its address for the frames: net_pcap counts its ports in the last
    // byte, and writes "pcap" before.
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let mac = [0x02, 0x70, 0x63, 0x61, 0x70, number];
    let file = folder.join(format!("{number}.pcap"));
    capture::write(&file, &frames(mac))?;
    let (port, queues) = open(eal, &replay_device(usize::from(number), &file), buffers)?;
    if queues.mac() != mac {
        bail!(
            "net_pcap has the address {:02x?} and not {mac:02x?}",
            queues.mac()
        );
    }
    Ok(Replay {
        queues,
        file,
        _port: port,
    })
}

/// The devargs of such a port.
pub(crate) fn replay_device(index: usize, file: &Path) -> String {
    format!("net_pcap{index},rx_pcap={},infinite_rx=1", file.display())
}

/// Runs `measure` on a thread that is pinned to [`CPU`] and known to EAL.
///
/// # Errors
/// Those of `measure`, or when the thread cannot be pinned.
pub(crate) fn pinned<T: Send>(eal: &Eal, measure: impl FnOnce() -> Result<T> + Send) -> Result<T> {
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            if !core_affinity::set_for_current(core_affinity::CoreId { id: CPU }) {
                bail!("cannot pin to CPU {CPU}");
            }
            let _registered = dpdk::register_thread(eal)?;
            measure()
        });
        thread
            .join()
            .map_err(|_| anyhow!("the measuring thread panicked"))?
    })
}

/// Answered queries per second over about `time`. Every query received must be answered.
///
/// # Errors
/// When one was not.
pub(crate) fn rate<Q: QueuePair>(worker: &mut Worker<Q>, time: Duration) -> Result<f64> {
    let (replied, dropped) = counts(worker);
    let start = Instant::now();
    let mut received = 0;
    while start.elapsed() < time {
        received += measured_polls(worker, TURNS);
    }
    let elapsed = start.elapsed().as_secs_f64();
    let (replied, dropped) = (counts(worker).0 - replied, counts(worker).1 - dropped);
    if dropped > 0 || replied != received as u64 || received == 0 {
        bail!("of {received} queries {replied} were answered and {dropped} dropped");
    }
    Ok(replied as f64 / elapsed)
}

/// Polls until so many packets have come, at least.
pub(crate) fn warm_up<Q: QueuePair>(worker: &mut Worker<Q>, packets: usize) {
    measured_polls(worker, packets / (POLLS_PER_TURN * BURST_MAX) + 1);
}

fn counts<Q: QueuePair>(worker: &Worker<Q>) -> (u64, u64) {
    let counters = worker.counters();
    (counters.get(Counter::Replied), counters.sum(Kind::Drop))
}
