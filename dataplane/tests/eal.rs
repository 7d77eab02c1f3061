//! EAL leaves the process as it found it: affinity, files, and a second start is refused. One test
//! in a process of its own, since EAL starts once.

#![cfg(feature = "dpdk")]

use dataplane::io::dpdk::{DpdkError, Eal, EalConfig, Mempool, Port, PortConfig, register_thread};
use dataplane::io::{Burst, QueuePair};

#[test]
fn eal_starts_once_without_pinning_us_and_cleans_up_last() {
    let before = core_affinity::get_core_ids();
    let config = EalConfig {
        name: "eal-test".into(),
        memory_bytes: 64 << 20,
        ..EalConfig::default()
    };
    let eal = Eal::init(&config).unwrap();
    assert_eq!(core_affinity::get_core_ids(), before);
    let inherited = std::thread::spawn(core_affinity::get_core_ids).join().unwrap();
    assert_eq!(inherited, before);
    assert!(matches!(Eal::init(&config), Err(DpdkError::AlreadyStarted)));
    assert!(Eal::version().starts_with("DPDK "), "{}", Eal::version());

    let run_dir = format!("/var/run/dpdk/eal-test-{}", std::process::id());
    assert!(!std::path::Path::new(&run_dir).exists(), "{run_dir}");

    let registered = register_thread(&eal).unwrap();
    assert!(registered.lcore() < 128);
    assert!(matches!(register_thread(&eal), Err(DpdkError::Thread { .. })));
    let other = eal.clone();
    let lcore = std::thread::spawn(move || register_thread(&other).unwrap().lcore())
        .join()
        .unwrap();
    assert_ne!(lcore, registered.lcore());
    drop(registered);

    // Handles go in an odd order, with buffers still in a burst: nothing is freed too early.
    let pool = Mempool::new(&eal, 1023, None).unwrap();
    let device = PortConfig {
        device: "net_null0".into(),
        rx_descriptors: 64,
        tx_descriptors: 64,
        ..PortConfig::default()
    };
    let (port, mut queues) = Port::open(&eal, &device, std::slice::from_ref(&pool)).unwrap();
    drop((eal, pool, port));
    let mut burst = Burst::new();
    queues[0].rx(&mut burst);
    assert_eq!(burst.len(), 32);
    drop(burst);
    drop(queues);
    assert!(!std::path::Path::new(&run_dir).exists(), "{run_dir}");
}
