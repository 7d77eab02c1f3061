//! The client's access line: a user-space forwarder that delays, loses and reorders what the client sends.
//!
//! Between two AF_PACKET sockets, since the kernel may have no netem. One direction: nothing comes back over it, and neighbours are
//! static. It adds 25 to 50 us of its own.

use crate::timer::Timer;
use anyhow::Result;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;
use windrose_tests::lab::Host;
use windrose_tests::raw::RawSocket;

/// What the line does to packets.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Impairment {
    /// Share that is lost.
    pub loss: f64,
    /// Share that is late, and by how many microseconds.
    pub late: (f64, u64),
    /// Microseconds that all packets take.
    pub delay: u64,
}

impl Impairment {
    /// None: no forwarder is needed.
    pub const NONE: Self = Self {
        loss: 0.0,
        late: (0.0, 0),
        delay: 0,
    };
}

/// A running line. Ends when dropped.
#[derive(Debug)]
pub struct Link {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Link {
    /// Forwards from `near` to `far`, two interfaces of `host`.
    ///
    /// # Errors
    /// When the sockets cannot be opened.
    pub fn start(host: &Host, impairment: Impairment, seed: u64) -> Result<Self> {
        let near = RawSocket::open(host, "near")?;
        let far = Arc::new(RawSocket::open(host, "far")?);
        let stop = Arc::new(AtomicBool::new(false));
        let over = stop.clone();
        let thread = std::thread::spawn(move || {
            let (timer, mut random) = (Timer::exact(), fastrand::Rng::with_seed(seed));
            while !over.load(Ordering::Relaxed) {
                let is_ipv4 = |frame: &[u8]| frame.get(12..14) == Some(&[8, 0]);
                let Ok(frame) = near.receive(Duration::from_millis(100), is_ipv4) else {
                    continue;
                };
                if random.f64() < impairment.loss {
                    continue;
                }
                let (share, late) = impairment.late;
                let late = if random.f64() < share { late } else { 0 };
                let wait = impairment.delay + late;
                // What the kernel refuses is lost, as on a line that is full.
                if wait == 0 {
                    let _ = far.send(&frame);
                } else {
                    let far = far.clone();
                    timer.after(Duration::from_micros(wait), move || {
                        let _ = far.send(&frame);
                    });
                }
            }
        });
        Ok(Self {
            stop,
            thread: Some(thread),
        })
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // It has nothing to say.
            let _ = thread.join();
        }
    }
}
