//! The thread that drains the workers' rings of samples into the store, and hands rows to the file of samples.
//!
//! Started by the run loop, by itself since neither words nor packets may wait for it. A turn takes a bounded number from each
//! ring; what a worker has no room for in the meantime it drops and counts.

use super::file::{Row, SampleFile};
use super::store::Store;
use dataplane::link::{LatencySample, SampleReceiver};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Samples taken from one ring in one turn: half of what fits by default.
pub const SAMPLES_PER_TURN: usize = 4096;
/// Pause after a turn that found nothing; a ring of 8,192 fills in that time at 1.6 million samples a second.
const IDLE: Duration = Duration::from_millis(5);
/// Pause after one that did.
const BUSY: Duration = Duration::from_millis(1);

/// Takes what is in the rings, [`SAMPLES_PER_TURN`] from each at most; how many that were.
pub fn drain(
    rings: &mut [SampleReceiver],
    store: &Store,
    file: Option<&SampleFile>,
    now: Instant,
    batch: &mut Vec<LatencySample>,
) -> usize {
    let mut taken = 0;
    for ring in rings {
        batch.clear();
        batch.extend(std::iter::from_fn(|| ring.receive()).take(SAMPLES_PER_TURN));
        if batch.is_empty() {
            continue;
        }
        taken += batch.len();
        match file {
            None => store.take(batch, now, None),
            Some(file) => {
                let mut rows: Vec<Row> = Vec::with_capacity(batch.len());
                store.take(batch, now, Some(&mut rows));
                file.write(rows);
            }
        }
    }
    taken
}

/// The running thread. Dropping it ends it.
#[derive(Debug)]
pub struct Collector {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Collector {
    /// Starts it.
    ///
    /// # Errors
    /// When the system refuses a thread.
    pub fn start(
        mut rings: Vec<SampleReceiver>,
        store: Arc<Store>,
        file: Option<Arc<SampleFile>>,
    ) -> io::Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let body = move || {
            let mut batch = Vec::with_capacity(SAMPLES_PER_TURN);
            while !stopped.load(Ordering::Relaxed) {
                let taken = drain(&mut rings, &store, file.as_deref(), Instant::now(), &mut batch);
                std::thread::sleep(if taken == 0 { IDLE } else { BUSY });
            }
        };
        let thread = std::thread::Builder::new()
            .name("windrose-lat".into())
            .spawn(body)?;
        Ok(Self {
            stop,
            thread: Some(thread),
        })
    }
}

impl Drop for Collector {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the thread that collects latency samples panicked");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::tests::with_service;
    use dataplane::link::samples::sample_ring;

    #[test]
    fn a_turn_is_bounded_for_each_ring() {
        let store = Store::new(&with_service(|_| {}), Instant::now());
        let (mut senders, mut rings): (Vec<_>, Vec<_>) = (0..2).map(|_| sample_ring(8192)).unzip();
        for n in 0..5000 {
            assert!(senders[0].send(LatencySample::default()));
            assert!(n >= 10 || senders[1].send(LatencySample::default()));
        }
        let mut batch = Vec::new();
        let mut turn = || drain(&mut rings, &store, None, Instant::now(), &mut batch);
        // 5,000 and 10 wait.
        assert_eq!([turn(), turn(), turn()], [4096 + 10, 904, 0]);
        // Of tables that were never told.
        assert_eq!(store.counts().unknown, 5010);
    }

    #[test]
    fn the_thread_drains_until_it_is_dropped() {
        let store = Arc::new(Store::new(&with_service(|_| {}), Instant::now()));
        let (mut sender, ring) = sample_ring(8192);
        let collector = Collector::start(vec![ring], store.clone(), None).unwrap();
        for _ in 0..100 {
            assert!(sender.send(LatencySample::default()));
        }
        while store.counts().unknown < 100 {
            std::thread::sleep(BUSY);
        }
        drop(collector);
        assert!(sender.send(LatencySample::default()));
        std::thread::sleep(IDLE * 4);
        assert_eq!(store.counts().unknown, 100);
    }
}
