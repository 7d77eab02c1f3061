//! The publisher against workers on threads of their own, and against workers that do nothing.

use super::*;
use dataplane::link::{
    DeliverySlots, LinkSlots, PacketRefused, StopFlag, WORDS_PER_TURN, WordValue, WorkerLink, connect,
};
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::ThreadId;

/// A snapshot that notes which threads drop it.
struct Tables {
    drops: Arc<Mutex<Vec<ThreadId>>>,
}

impl Drop for Tables {
    fn drop(&mut self) {
        lock(&self.drops).push(std::thread::current().id());
    }
}

const LONG: Duration = Duration::from_secs(3600);
const DEADLINE: Duration = Duration::from_secs(60);

/// Polls until `done`, or fails after a minute.
fn until(what: &str, mut done: impl FnMut() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < DEADLINE, "{what}: not within a minute");
        std::thread::sleep(Duration::from_millis(1));
    }
}

type Known = HashMap<WordTarget, WordValue>;

/// A word value that carries one small number in several parts.
fn wide(value: u64) -> WordValue {
    [value, !value, 0, 0, 0, value]
}

/// A worker on a thread: punts one packet a turn while `punts` last, sends back what is injected.
fn spawn_worker(
    mut link: WorkerLink<Tables>,
    mut punts: u32,
) -> JoinHandle<(WorkerLink<Tables>, Known, Vec<Vec<u8>>)> {
    std::thread::spawn(move || {
        let (mut known, mut injected) = (Known::new(), vec![]);
        while !link.stop.is_set() {
            link.take(WORDS_PER_TURN, Ticks::now(), |target, value| {
                known.insert(target, value);
            });
            if punts > 0 && link.punts.send(7, &punts.to_be_bytes()).is_ok() {
                punts -= 1;
            }
            link.injections
                .receive(|port, frame| injected.push([&[port], frame].concat()));
            std::thread::yield_now();
        }
        (link, known, injected)
    })
}

#[test]
fn every_worker_gets_the_newest_and_control_frees_the_rest() {
    const SNAPSHOTS: u64 = 2000;
    let (stop, drops) = (StopFlag::default(), Arc::new(Mutex::new(vec![])));
    let (ends, links): (Vec<_>, Vec<_>) = (0..3)
        .map(|_| connect(LinkSlots::default(), stop.clone()))
        .unzip();
    let workers: Vec<_> = ends.into_iter().map(|end| spawn_worker(end, 0)).collect();
    let worker_threads: Vec<ThreadId> = workers.iter().map(|worker| worker.thread().id()).collect();
    let publisher = Publisher::start(links, LONG, |_| ()).unwrap();
    let mut set = Known::new();
    for generation in 1..=SNAPSHOTS {
        let words: Vec<_> = (0..3)
            .map(|n| {
                (
                    WordTarget::Members((generation as u32 + n) % 50),
                    wide(generation),
                )
            })
            .collect();
        set.extend(words.iter().copied());
        publisher.set_words(words).unwrap();
        publisher
            .publish(
                Arc::new(Tables {
                    drops: Arc::clone(&drops),
                }),
                generation,
            )
            .unwrap();
    }
    until("rest", || {
        publisher.oldest_generation() == SNAPSHOTS
            && publisher.status().iter().all(|worker| worker.ledger.at_rest())
    });
    for worker in publisher.status() {
        assert_eq!(worker.ledger.check_at_rest(), Ok(()));
        assert_eq!(
            (worker.ledger.control.published, worker.ledger.control.words_set),
            (SNAPSHOTS, 3 * SNAPSHOTS)
        );
        assert!(worker.started && worker.stalled_since.is_none());
    }
    let delays = publisher.delays();
    assert!(delays.iter().zip(publisher.status()).all(|(delays, worker)| {
        delays.count() == worker.ledger.worker.adopted + worker.ledger.worker.words_taken
    }));
    until("all but the last freed", || {
        lock(&drops).len() as u64 == SNAPSHOTS - 1
    });
    stop.stop();
    let ended: Vec<_> = workers.into_iter().map(|worker| worker.join().unwrap()).collect();
    assert!(ended.iter().all(|(_, known, _)| *known == set));
    publisher.stop();
    drop(ended);
    let drops = lock(&drops);
    assert_eq!(drops.len() as u64, SNAPSHOTS);
    assert!(
        drops.iter().all(|thread| !worker_threads.contains(thread)),
        "dropped by a worker"
    );
    assert!(
        drops[..drops.len() - 1]
            .iter()
            .all(|thread| *thread != std::thread::current().id())
    );
}

#[test]
fn generations_must_rise() {
    let publisher = Publisher::<u8>::start(vec![], LONG, |_| ()).unwrap();
    publisher.publish(Arc::new(0), 5).unwrap();
    assert_eq!(
        publisher.publish(Arc::new(0), 5),
        Err(PublishError::StaleGeneration { given: 5, newest: 5 })
    );
    assert_eq!(
        publisher.publish(Arc::new(0), 4),
        Err(PublishError::StaleGeneration { given: 4, newest: 5 })
    );
    publisher.publish(Arc::new(0), 6).unwrap();
}

#[test]
fn a_worker_that_takes_nothing_delays_no_other_and_loses_nothing() {
    let (stop, drops) = (StopFlag::default(), Arc::new(Mutex::new(vec![])));
    let slots = LinkSlots {
        delivery: DeliverySlots {
            snapshots: 1,
            words: 2,
            retired: 1,
        },
        ..Default::default()
    };
    let (mut idle, idle_link) = connect(slots, stop.clone());
    let (busy, busy_link) = connect(slots, stop.clone());
    let busy = spawn_worker(busy, 0);
    let publisher = Publisher::start(vec![idle_link, busy_link], LONG, |_| ()).unwrap();
    for generation in 1..=20 {
        publisher
            .set_words(vec![(WordTarget::Site(generation as u32 % 5), wide(generation))])
            .unwrap();
        publisher
            .publish(
                Arc::new(Tables {
                    drops: Arc::clone(&drops),
                }),
                generation,
            )
            .unwrap();
        until("the other worker", || {
            publisher.status()[1].ledger.worker.generation == generation
        });
    }
    let status = publisher.status();
    assert_eq!(
        (status[0].started, status[0].ledger.worker.generation),
        (false, 0)
    );
    // Snapshot 1 fills the ring, 20 is kept; words 1 and 2 fill theirs, the newest of each site is kept.
    assert_eq!(
        (
            status[0].ledger.control.superseded,
            status[0].ledger.snapshots_in_flight()
        ),
        (18, 2)
    );
    assert_eq!(
        (
            status[0].ledger.control.words_sent,
            status[0].ledger.words_in_flight()
        ),
        (2, 7)
    );
    let mut known = Known::new();
    until("rest", || {
        idle.take(1, Ticks::now(), |target, value| {
            known.insert(target, value);
        });
        publisher.status()[0].ledger.at_rest()
    });
    assert_eq!(publisher.status()[0].ledger.check_at_rest(), Ok(()));
    assert_eq!(idle.tables.generation(), 20);
    assert_eq!(
        known,
        (16..=20)
            .map(|n| (WordTarget::Site(n % 5), wide(n.into())))
            .collect()
    );
    stop.stop();
    busy.join().unwrap();
}

#[test]
fn punts_come_up_in_order_and_injections_go_down() {
    const PUNTS: u32 = 1000;
    let stop = StopFlag::default();
    let slots = LinkSlots {
        punts: 4,
        injections: 2,
        ..Default::default()
    };
    let (ends, links): (Vec<_>, Vec<_>) = (0..2).map(|_| connect(slots, stop.clone())).unzip();
    let (tell, told) = unbounded();
    let publisher = Publisher::start(links, LONG, move |punt| {
        assert_eq!(punt.port, 7);
        tell.send((punt.worker, u32::from_be_bytes(punt.frame.try_into().unwrap())))
            .unwrap();
    })
    .unwrap();
    // Nobody takes yet: two injections fit the first worker's ring, the third does not, nor one that is too long.
    for frame in [vec![1], vec![2, 2], vec![3]] {
        publisher.inject(0, 9, frame).unwrap();
    }
    publisher
        .inject(1, 9, vec![0; dataplane::io::WINDOW + 1])
        .unwrap();
    until("refusals", || {
        publisher
            .status()
            .iter()
            .map(|worker| worker.injections_refused)
            .eq([1, 1])
    });
    let workers: Vec<_> = ends.into_iter().map(|end| spawn_worker(end, PUNTS)).collect();
    until("all punts", || {
        publisher
            .status()
            .iter()
            .all(|worker| worker.punts == u64::from(PUNTS))
    });
    stop.stop();
    let injected: Vec<_> = workers
        .into_iter()
        .map(|worker| worker.join().unwrap().2)
        .collect();
    assert_eq!(injected, [vec![vec![9, 1], vec![9, 2, 2]], vec![]]);
    publisher.stop();
    let told: Vec<_> = told.into_iter().collect();
    for worker in 0..2 {
        assert!(
            told.iter()
                .filter(|(from, _)| *from == worker)
                .map(|(_, n)| *n)
                .eq((1..=PUNTS).rev())
        );
    }
}

#[test]
fn a_stalled_worker_is_seen_and_so_is_its_return() {
    let (mut worker, link) = connect::<u8>(LinkSlots::default(), StopFlag::default());
    let publisher = Publisher::start(vec![link], Duration::from_millis(20), |_| ()).unwrap();
    assert!(
        publisher.status()[0].stalled_since.is_none(),
        "not started is not stalled"
    );
    worker.take(1, Ticks::now(), |_, _| ());
    until("the start", || publisher.status()[0].started);
    until("the stall", || publisher.status()[0].stalled_since.is_some());
    until("the return", || {
        worker.take(1, Ticks::now(), |_, _| ());
        publisher.status()[0].stalled_since.is_none()
    });
}

#[test]
fn stop_delivers_what_was_sent_before() {
    let (mut worker, link) = connect(LinkSlots::default(), StopFlag::default());
    let publisher = Publisher::start(vec![link], LONG, |_| ()).unwrap();
    publisher.set_words(vec![(WordTarget::Site(1), wide(2))]).unwrap();
    publisher.publish(Arc::new(11), 1).unwrap();
    let status = publisher.stop();
    assert_eq!(
        (
            status[0].ledger.snapshots_in_flight(),
            status[0].ledger.words_in_flight()
        ),
        (1, 1)
    );
    let words = AtomicU64::new(0);
    worker.take(8, Ticks::now(), |_, _| {
        words.fetch_add(1, Ordering::Relaxed);
    });
    assert_eq!((worker.tables.current(), words.into_inner()), (Some(&11), 1));
}

#[test]
fn a_publisher_whose_thread_died_says_so() {
    let (mut worker, link) = connect::<u8>(LinkSlots::default(), StopFlag::default());
    let publisher = Publisher::start(vec![link], LONG, |_| panic!("seeded in a test")).unwrap();
    worker.punts.send(0, b"x").unwrap();
    until("the end", || {
        publisher.set_words(vec![]) == Err(PublishError::Stopped)
    });
    assert_eq!(publisher.publish(Arc::new(0), 1), Err(PublishError::Stopped));
}

/// A sink that takes three packets whenever it is told to.
struct InThrees {
    told: crossbeam::channel::Receiver<()>,
    left: u32,
    taken: crossbeam::channel::Sender<Vec<u8>>,
}

impl PuntSink for InThrees {
    fn ready(&mut self) -> bool {
        self.left += 3 * self.told.try_iter().count() as u32;
        self.left > 0
    }
    fn take(&mut self, packet: PuntedPacket<'_>) {
        self.left -= 1;
        self.taken.send(packet.frame.to_vec()).unwrap();
    }
}

#[test]
fn what_a_sink_does_not_take_waits_in_the_ring_and_fills_it() {
    let slots = LinkSlots {
        punts: 4,
        ..Default::default()
    };
    let (mut worker, link) = connect::<Tables>(slots, StopFlag::default());
    let ((tell, told), (taken, out)) = (unbounded(), unbounded());
    let sink = InThrees { told, left: 0, taken };
    let publisher = Publisher::start_with(vec![link], LONG, sink).unwrap();
    for n in 0..4 {
        worker.punts.send(0, &[n]).unwrap();
    }
    // Many turns of the publisher later the ring is still full.
    std::thread::sleep(Duration::from_millis(50));
    assert_eq!(worker.punts.send(0, &[4]), Err(PacketRefused::Full));
    tell.send(()).unwrap();
    until("three are taken", || publisher.status()[0].punts == 3);
    for n in 5..8 {
        worker.punts.send(0, &[n]).unwrap();
    }
    assert_eq!(worker.punts.send(0, &[8]), Err(PacketRefused::Full));
    tell.send(()).unwrap();
    until("six are taken", || publisher.status()[0].punts == 6);
    publisher.stop();
    let taken: Vec<Vec<u8>> = out.into_iter().collect();
    assert_eq!(taken, [0, 1, 2, 3, 5, 6].map(|n| vec![n]));
}
