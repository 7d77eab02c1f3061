//! Work that is done at a point in time, by one thread: what servers and the user-space link wait with.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

type Work = Box<dyn FnOnce() + Send>;

struct Task {
    due: Instant,
    number: u64,
    work: Work,
}

impl PartialEq for Task {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}
impl Eq for Task {}
impl PartialOrd for Task {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Task {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.due, self.number).cmp(&(other.due, other.number))
    }
}

#[derive(Default)]
struct Queue {
    tasks: BinaryHeap<Reverse<Task>>,
    number: u64,
    over: bool,
}

/// The thread. Clones speak of the same; it ends with the last one, and what is not due by then is not done.
#[derive(Clone)]
pub struct Timer(Arc<Ends>);

struct Ends(Arc<(Mutex<Queue>, Condvar)>);

impl Drop for Ends {
    fn drop(&mut self) {
        self.0.0.lock().unwrap_or_else(PoisonError::into_inner).over = true;
        self.0.1.notify_all();
    }
}

impl Default for Timer {
    /// As servers wait.
    fn default() -> Self {
        Self::start(Duration::ZERO)
    }
}

impl Timer {
    /// One that does not sleep through the end of a wait: waking takes 20 to 60 us, now one and now the other.
    pub fn exact() -> Self {
        Self::start(Duration::from_micros(60))
    }

    fn start(spin: Duration) -> Self {
        let shared: Arc<(Mutex<Queue>, Condvar)> = Arc::default();
        let own = shared.clone();
        std::thread::spawn(move || run(&own, spin));
        Self(Arc::new(Ends(shared)))
    }

    /// Does `work` after `wait`.
    pub fn after(&self, wait: Duration, work: impl FnOnce() + Send + 'static) {
        let shared = &self.0.0;
        let mut queue = shared.0.lock().unwrap_or_else(PoisonError::into_inner);
        queue.number += 1;
        let task = Task {
            due: Instant::now() + wait,
            number: queue.number,
            work: Box::new(work),
        };
        queue.tasks.push(Reverse(task));
        shared.1.notify_one();
    }
}

fn run((queue, changed): &(Mutex<Queue>, Condvar), spin: Duration) {
    // The kernel rounds waits up by 50 us otherwise. Where it refuses, they are that much longer.
    let _ = nix::sys::prctl::set_timerslack(1);
    let mut held = queue.lock().unwrap_or_else(PoisonError::into_inner);
    while !held.over {
        let Some(Reverse(next)) = held.tasks.peek() else {
            held = changed.wait(held).unwrap_or_else(PoisonError::into_inner);
            continue;
        };
        let due = next.due;
        let wait = due.saturating_duration_since(Instant::now());
        if wait <= spin {
            drop(held);
            while Instant::now() < due {
                std::hint::spin_loop();
            }
            held = queue.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(Reverse(task)) = held.tasks.pop() {
                drop(held);
                (task.work)();
                held = queue.lock().unwrap_or_else(PoisonError::into_inner);
            }
        } else {
            held = changed
                .wait_timeout(held, wait - spin)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_is_done_in_order_of_time() {
        for timer in [Timer::default(), Timer::exact()] {
            let (sender, receiver) = std::sync::mpsc::channel();
            for wait in [30u64, 10, 20] {
                let sender = sender.clone();
                timer.after(Duration::from_millis(wait), move || sender.send(wait).unwrap());
            }
            assert_eq!(receiver.iter().take(3).collect::<Vec<_>>(), [10, 20, 30]);
        }
    }
}
