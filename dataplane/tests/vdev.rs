//! Real ports without a NIC: each virtual device of DPDK that the product supports sends and
//! receives frames, and gives every buffer back. Runs as root (namespaces, TAP, AF_PACKET, AF_XDP).
//!
//! EAL starts once a process, so the tests share one and take turns. Tests with kernel interfaces
//! run on a thread in a network namespace of its own, which goes away with the thread.

#![cfg(feature = "dpdk")]
#![allow(unsafe_code)] // unshare(2)

use dataplane::io::dpdk::{
    DpdkQueues, Eal, EalConfig, Mbuf, Mempool, Multicast, Port, PortConfig, register_thread,
};
use dataplane::io::{Buffer, Burst, ChecksumOffload, QueuePair, Shape};
use std::process::Command;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

const BUFFERS: u32 = 2048;

/// The one EAL, for one test at a time.
fn eal() -> (&'static Eal, MutexGuard<'static, ()>) {
    static TURN: Mutex<()> = Mutex::new(());
    static EAL: OnceLock<Eal> = OnceLock::new();
    let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let config = EalConfig {
        name: "vdev-test".into(),
        memory_bytes: 128 << 20,
        ..EalConfig::default()
    };
    (EAL.get_or_init(|| Eal::init(&config).unwrap()), turn)
}

fn config(device: &str) -> PortConfig {
    PortConfig {
        device: device.into(),
        rx_descriptors: 256,
        tx_descriptors: 256,
        ..PortConfig::default()
    }
}

fn open(eal: &Eal, device: &str, pool: &Mempool) -> (Port, DpdkQueues) {
    let (port, mut queues) = Port::open(eal, &config(device), std::slice::from_ref(pool)).unwrap();
    assert_eq!(queues.len(), 1);
    (port, queues.remove(0))
}

/// A frame of the EtherType for local experiments (IEEE 802), told apart by its number.
fn frame(number: u32, len: usize) -> Vec<u8> {
    let mut frame = vec![0x02, 0, 0, 0, 0, 0xbb, 0x02, 0, 0, 0, 0, 0xaa, 0x88, 0xb5];
    frame.extend(number.to_be_bytes());
    frame.extend((frame.len()..len).map(|at| (at as u32 * 7 + number) as u8));
    frame
}

fn is_ours(frame: &[u8]) -> bool {
    frame
        .windows(2)
        .skip(12)
        .step_by(4)
        .take(3)
        .any(|ether_type| ether_type == [0x88, 0xb5])
}

fn load(queues: &mut DpdkQueues, frames: &[Vec<u8>]) -> Burst<Mbuf> {
    let mut burst = Burst::new();
    for frame in frames {
        let mut mbuf = queues.alloc().expect("a free buffer");
        assert_eq!(mbuf.len(), 0);
        mbuf.window()[..frame.len()].copy_from_slice(frame);
        mbuf.set_len(frame.len());
        burst.push(mbuf).unwrap();
    }
    burst
}

fn send(queues: &mut DpdkQueues, frames: &[Vec<u8>]) {
    for frames in frames.chunks(32) {
        let mut burst = load(queues, frames);
        assert_eq!(queues.tx(&mut burst), frames.len());
        assert!(burst.is_empty());
    }
}

/// Says at which frame two lists part, in few words.
#[track_caller]
fn assert_same(got: &[Vec<u8>], sent: &[Vec<u8>]) {
    for (at, (got, sent)) in got.iter().zip(sent).enumerate() {
        assert!(
            got == sent,
            "frame {at}: {} bytes {:02x?}, sent {} bytes {:02x?}",
            got.len(),
            &got[..20],
            sent.len(),
            &sent[..20]
        );
    }
    assert_eq!(got.len(), sent.len(), "frames");
}

/// Receives until there are `count` frames of ours, for two seconds at most. Others (neighbour
/// discovery of the kernel) are let go.
fn receive(queues: &mut [DpdkQueues], count: usize) -> Vec<Vec<u8>> {
    let mut got = Vec::new();
    for _ in 0..2000 {
        for queue in queues.iter_mut() {
            let mut burst = Burst::new();
            queue.rx(&mut burst);
            got.extend(
                burst
                    .iter()
                    .map(|mbuf| mbuf.frame().to_vec())
                    .filter(|frame| is_ours(frame)),
            );
        }
        if got.len() >= count {
            break;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    got
}

fn run(command: &str) {
    let mut words = command.split_whitespace();
    let output = Command::new(words.next().unwrap())
        .args(words)
        .output()
        .expect(command);
    assert!(
        output.status.success(),
        "{command}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
}

/// Runs `test` on a thread in a fresh network namespace; commands that it runs are in there too.
fn in_namespace(test: impl FnOnce() + Send) {
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            // SAFETY: no memory is involved; only this thread moves.
            let code = unsafe { libc::unshare(libc::CLONE_NEWNET) };
            assert_eq!(
                code,
                0,
                "this test needs root: {}",
                std::io::Error::last_os_error()
            );
            test();
        });
        if let Err(panic) = thread.join() {
            std::panic::resume_unwind(panic);
        }
    });
}

fn veth_pair() {
    run("ip link add left type veth peer name right");
    for end in ["left", "right"] {
        run(&format!("ip link set {end} up"));
    }
}

#[test]
fn ring_gives_back_the_same_frames_and_every_buffer() {
    let (eal, _turn) = eal();
    let pool = Mempool::new(eal, BUFFERS, None).unwrap();
    assert_eq!(pool.available(), BUFFERS);
    let (port, mut queues) = open(eal, "net_ring_same", &pool);
    let sent: Vec<_> = (0..32).map(|n| frame(n, 60 + 40 * n as usize)).collect();
    send(&mut queues, &sent);
    assert_eq!(pool.available(), BUFFERS - 32);
    assert_same(&receive(std::slice::from_mut(&mut queues), 32), &sent);
    assert_eq!(pool.available(), BUFFERS);
    let stats = port.stats().unwrap();
    assert_eq!((stats.ipackets, stats.opackets, stats.rx_nombuf), (32, 32, 0));
    let xstats = port.xstats().unwrap();
    assert!(xstats.contains(&("rx_good_packets".into(), 32)), "{xstats:?}");
    assert_eq!((port.info().driver.as_str(), port.info().queues), ("net_ring", 1));
    assert_eq!(queues.mac(), port.info().mac);
}

#[test]
fn what_the_ring_refuses_stays_in_order() {
    let (eal, _turn) = eal();
    let pool = Mempool::new(eal, BUFFERS, None).unwrap();
    let (_port, mut queues) = open(eal, "net_ring_full", &pool);
    // The driver's ring holds 1023.
    for n in 0..31 {
        send(
            &mut queues,
            &(0..32).map(|m| frame(32 * n + m, 60)).collect::<Vec<_>>(),
        );
    }
    let last: Vec<_> = (992..1024).map(|n| frame(n, 60)).collect();
    let mut burst = load(&mut queues, &last);
    assert_eq!(queues.tx(&mut burst), 31);
    assert_eq!(
        burst.iter().map(|mbuf| mbuf.frame()).collect::<Vec<_>>(),
        [&last[31][..]]
    );
    assert_eq!(queues.tx(&mut burst), 0);
    assert_eq!(receive(std::slice::from_mut(&mut queues), 1023).len(), 1023);
    assert_eq!(queues.tx(&mut burst), 1);
    assert_eq!(receive(std::slice::from_mut(&mut queues), 1), last[31..]);
    assert_eq!(pool.available(), BUFFERS);
}

#[test]
fn a_million_packets_leave_the_pool_as_it_was() {
    let (eal, _turn) = eal();
    let _registered = register_thread(eal).unwrap();
    let pool = Mempool::new(eal, BUFFERS, None).unwrap();
    let (port, mut queues) = open(eal, "net_ring_million", &pool);
    let mut received = 0u64;
    let mut burst = Burst::new();
    while received < 1_000_000 {
        while let Some(mut mbuf) = (burst.free() > 0).then(|| queues.alloc()).flatten() {
            mbuf.window()[..4].copy_from_slice(&(received as u32).to_be_bytes());
            mbuf.set_len(60 + received as usize % 1000);
            burst.push(mbuf).unwrap();
        }
        assert_eq!(queues.tx(&mut burst), 32);
        queues.rx(&mut burst);
        received += burst.len() as u64;
        // Every way out of a worker: dropped alone, dropped with the burst, or sent on.
        drop(burst.pop_front());
        if received.is_multiple_of(3) {
            burst.clear();
        }
    }
    burst.clear();
    // What is still in the ring.
    receive(std::slice::from_mut(&mut queues), 1);
    assert_eq!(pool.available(), BUFFERS);
    assert!(port.stats().unwrap().ipackets >= 1_000_000);
    drop((port, queues));
    assert_eq!(pool.available(), BUFFERS);
}

#[test]
fn an_empty_pool_gives_none_and_recovers() {
    let (eal, _turn) = eal();
    let pool = Mempool::new(eal, 1023, None).unwrap();
    let (_port, mut queues) = open(eal, "net_ring_empty", &pool);
    let held: Vec<_> = std::iter::from_fn(|| queues.alloc()).collect();
    assert_eq!((held.len(), pool.available()), (1023, 0));
    drop(held);
    assert_eq!(pool.available(), 1023);
    assert!(queues.alloc().is_some());
}

#[test]
fn buffers_come_by_the_burst_until_the_pool_ends() {
    let (eal, _turn) = eal();
    // 32 bursts of 32, and 16 more.
    let pool = Mempool::new(eal, 1040, None).unwrap();
    let (_port, mut queues) = open(eal, "net_null_bulk", &pool);
    let mut burst = Burst::new();
    assert_eq!(queues.alloc_burst(&mut burst, 5), 5);
    assert_eq!(
        queues.alloc_burst(&mut burst, 40),
        27,
        "as many as the burst has room for"
    );
    assert!(
        burst
            .iter()
            .all(|mbuf| mbuf.is_empty() && mbuf.shape() == Shape::Whole)
    );
    burst.clear();
    assert_eq!(pool.available(), 1040);
    let mut held = Vec::new();
    let counts: Vec<_> = (0..34)
        .map(|_| {
            let mut burst = Burst::new();
            let count = queues.alloc_burst(&mut burst, 32);
            assert_eq!(count, burst.len());
            held.push(burst);
            count
        })
        .collect();
    assert_eq!(counts, [vec![32; 32], vec![16, 0]].concat());
    drop(held);
    assert_eq!(pool.available(), 1040);
}

#[test]
fn null_sends_and_receives_blanks() {
    let (eal, _turn) = eal();
    let pool = Mempool::new(eal, BUFFERS, None).unwrap();
    let (port, mut queues) = open(eal, "net_null0", &pool);
    let mut burst = Burst::new();
    queues.rx(&mut burst);
    assert_eq!(burst.len(), 32);
    assert!(
        burst
            .iter()
            .all(|mbuf| mbuf.len() == 64 && mbuf.shape() == Shape::Whole)
    );
    assert_eq!(queues.tx(&mut burst), 32);
    drop((port, queues));
    assert_eq!(pool.available(), BUFFERS);
}

/// A capture of these frames, all at time 0 (libpcap's file format, little-endian, Ethernet).
fn capture(frames: &[Vec<u8>]) -> Vec<u8> {
    let mut file = Vec::new();
    for word in [0xa1b2_c3d4u32, 0x0004_0002, 0, 0, 65535, 1] {
        file.extend(word.to_le_bytes());
    }
    for frame in frames {
        for word in [0, 0, frame.len() as u32, frame.len() as u32] {
            file.extend(word.to_le_bytes());
        }
        file.extend(frame);
    }
    file
}

#[test]
fn pcap_reads_and_writes_captures_and_reports_long_frames() {
    let (eal, _turn) = eal();
    let pool = Mempool::new(eal, BUFFERS, None).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let (rx, tx) = (dir.path().join("rx.pcap"), dir.path().join("tx.pcap"));
    // Longer than a window but not than a buffer; longer than a buffer.
    let frames = [
        frame(1, 60),
        frame(2, 1514),
        frame(3, 2048),
        frame(4, 2100),
        frame(5, 5000),
    ];
    std::fs::write(&rx, capture(&frames)).unwrap();
    let device = format!("net_pcap0,rx_pcap={},tx_pcap={}", rx.display(), tx.display());
    let (port, mut queues) = open(eal, &device, &pool);
    let mut burst = Burst::new();
    queues.rx(&mut burst);
    let seen: Vec<_> = burst.iter().map(|mbuf| (mbuf.len(), mbuf.shape())).collect();
    let (whole, over, multi) = (Shape::Whole, Shape::Oversized, Shape::MultiSegment);
    assert_eq!(
        seen,
        [
            (60, whole),
            (1514, whole),
            (2048, whole),
            (2100, over),
            (5000, multi)
        ]
    );
    for (mbuf, frame) in burst.iter().zip(&frames) {
        assert_eq!(mbuf.frame(), &frame[..frame.len().min(mbuf.frame().len())]);
    }
    // A long frame turned into a short one is one segment, and none is lost.
    let mut long = burst.drain().last().unwrap();
    long.window()[..60].copy_from_slice(&frames[0]);
    long.set_len(60);
    assert_eq!((long.shape(), pool.available()), (Shape::Whole, BUFFERS - 1));
    burst.push(long).unwrap();
    assert_eq!(queues.tx(&mut burst), 1);
    drop((port, queues));
    assert_eq!(pool.available(), BUFFERS);
    let written = std::fs::read(&tx).unwrap();
    assert_eq!(written[24 + 16..], frames[0][..]);
}

#[test]
fn memif_carries_frames_between_two_ports() {
    let (eal, _turn) = eal();
    let (pool, far_pool) = (
        Mempool::new(eal, BUFFERS, None).unwrap(),
        Mempool::new(eal, BUFFERS, None).unwrap(),
    );
    let dir = tempfile::tempdir().unwrap();
    let socket = format!(
        "socket={},socket-abstract=no",
        dir.path().join("memif.sock").display()
    );
    let (server, near) = open(eal, &format!("net_memif0,role=server,{socket}"), &pool);
    let (client, far) = open(eal, &format!("net_memif1,role=client,{socket}"), &far_pool);
    let (mut near, mut far) = ([near], [far]);
    for _ in 0..5000 {
        if server.link().0 && client.link().0 {
            break;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    assert!(server.link().0 && client.link().0, "memif did not connect");
    // The client lends the server its buffers when it first looks for frames.
    far[0].rx(&mut Burst::new());
    let sent: Vec<_> = (0..64).map(|n| frame(n, 60 + 20 * n as usize)).collect();
    send(&mut near[0], &sent);
    assert_same(&receive(&mut far, 64), &sent);
    send(&mut far[0], &sent[..10]);
    assert_same(&receive(&mut near, 10), &sent[..10]);
    drop((client, far, server, near));
    assert_eq!((pool.available(), far_pool.available()), (BUFFERS, BUFFERS));
}

#[test]
fn af_packet_carries_frames_with_their_vlan_tags() {
    let (eal, _turn) = eal();
    in_namespace(|| {
        veth_pair();
        let pool = Mempool::new(eal, BUFFERS, None).unwrap();
        let (left, mut near) = open(eal, "net_af_packet0,iface=left", &pool);
        let (right, far) = open(eal, "net_af_packet1,iface=right", &pool);
        let mut far = [far];
        assert_eq!(left.info().multicast, Multicast::Promiscuous);
        assert_eq!((left.info().mtu, right.info().mtu), (1500, 1500));
        let mut sent: Vec<_> = (0..40).map(|n| frame(n, 60 + 30 * n as usize)).collect();
        // One tag with priority, two of 0x8100, and 0x88a8 over 0x8100. The kernel takes the outer
        // one out of the data; af_packet puts it back, but does not know which TPID it had.
        let tagged = |tags: &[u8]| [&frame(99, 80)[..12], tags, &frame(99, 80)[12..]].concat();
        sent.push(tagged(b"\x81\x00\xa0\x64"));
        sent.push(tagged(b"\x81\x00\x00\x05\x81\x00\x00\x06"));
        sent.push(tagged(b"\x88\xa8\x00\x05\x81\x00\x00\x06"));
        send(&mut near, &sent);
        sent[42][12..14].copy_from_slice(b"\x81\x00");
        let got = receive(&mut far, sent.len());
        assert_same(&got, &sent);
        // Sent back by the receiver, the tag goes out once.
        send(&mut far[0], &got[40..41]);
        let mut near = [near];
        assert_same(&receive(&mut near, 1), &sent[40..41]);
        assert!(right.stats().unwrap().ipackets >= 43);
        drop((left, right, near, far));
        assert_eq!(pool.available(), BUFFERS);
    });
}

#[test]
fn af_packet_has_a_queue_pair_for_each_worker() {
    let (eal, _turn) = eal();
    in_namespace(|| {
        veth_pair();
        let pools = [0; 2].map(|_| Mempool::new(eal, BUFFERS, None).unwrap());
        let mut mtu = config("net_af_packet2,iface=right");
        mtu.mtu = Some(1400);
        let (port, mut far) = Port::open(eal, &mtu, &pools).unwrap();
        assert_eq!((port.info().queues, far.len(), port.info().mtu), (2, 2, 1400));
        assert_eq!(port.info().device, "net_af_packet2,iface=right,qpairs=2");
        let (_left, mut near) = open(eal, "net_af_packet3,iface=left", &pools[0]);
        let sent: Vec<_> = (0..64).map(|n| frame(n, 100)).collect();
        send(&mut near, &sent);
        let mut got = receive(&mut far, 64);
        got.sort();
        assert_same(&got, &sent);
        send(&mut far[1], &sent[..3]);
        assert_eq!(receive(&mut [near], 3), sent[..3]);
    });
}

#[test]
fn af_xdp_carries_frames_both_ways() {
    let (eal, _turn) = eal();
    in_namespace(|| {
        veth_pair();
        let pool = Mempool::new(eal, 8192, None).unwrap();
        let far_pool = Mempool::new(eal, 8192, None).unwrap();
        let (left, near) = open(eal, "net_af_packet4,iface=left", &pool);
        let (right, far) = open(eal, "net_af_xdp0,iface=right", &far_pool);
        let (mut near, mut far) = ([near], [far]);
        let sent: Vec<_> = (0..96).map(|n| frame(n, 60 + 15 * n as usize)).collect();
        send(&mut near[0], &sent);
        assert_same(&receive(&mut far, 96), &sent);
        send(&mut far[0], &sent);
        assert_same(&receive(&mut near, 96), &sent);
        assert_eq!(
            (right.info().driver.as_str(), far[0].unusable()),
            ("net_af_xdp", 0)
        );
        drop((left, right, near, far));
        assert_eq!(pool.available(), 8192);
    });
}

#[test]
fn tap_carries_frames_and_writes_checksums_on_request() {
    let (eal, _turn) = eal();
    in_namespace(|| {
        let pool = Mempool::new(eal, BUFFERS, None).unwrap();
        let (tap, mut near) = open(eal, "net_tap0,iface=tapunit", &pool);
        let (kernel, far) = open(eal, "net_af_packet5,iface=tapunit", &pool);
        let mut far = [far];
        assert!(tap.info().checksum_offload && near.checksum_offload());
        let sent: Vec<_> = (0..20).map(|n| frame(n, 60 + 40 * n as usize)).collect();
        send(&mut far[0], &sent);
        let mut near_side = [near];
        assert_same(&receive(&mut near_side, 20), &sent);
        [near] = near_side;

        // The datagram of the memory port's test, IPv4 then (with its sums by hand) IPv6.
        let ipv4 = b"\x45\x00\x00\x1f\x00\x00\x40\x00\x40\x11\x00\x00\xc0\xa8\x00\x01\xc0\xa8\x00\xc7\
                     \x04\xd2\x00\x35\x00\x0b\x82\x35hi!";
        let mut packet = frame(0, 14)[..12].to_vec();
        packet.extend(b"\x08\x00");
        packet.extend(ipv4);
        let mut burst = load(&mut near, &[packet]);
        burst.as_mut_slice()[0].request_checksum(ChecksumOffload {
            l2_len: 14,
            l3_len: 20,
            ipv4: true,
        });
        assert_eq!(near.tx(&mut burst), 1);
        let mut got = Vec::new();
        for _ in 0..2000 {
            far[0].rx(&mut burst);
            got.extend(
                burst
                    .drain()
                    .map(|mbuf| mbuf.frame().to_vec())
                    .filter(|f| f[12..14] == *b"\x08\x00"),
            );
            if !got.is_empty() {
                break;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        // Header: 4500+001f+4000+4011+c0a8+0001+c0a8+00c7 = 24748, folded 474a, complement b8b5.
        assert_eq!(got[0][24..26], [0xb8, 0xb5]);
        assert_eq!(got[0][40..42], [0xef, 0x4e]);
        drop((tap, kernel, near, far, burst));
        assert_eq!(pool.available(), BUFFERS);
    });
}

#[test]
fn mistakes_have_clear_errors() {
    let (eal, _turn) = eal();
    let pool = Mempool::new(eal, BUFFERS, None).unwrap();
    let one = std::slice::from_ref(&pool);
    let error = |config: &PortConfig, pools: &[Mempool]| {
        let error = Port::open(eal, config, pools).map(drop).unwrap_err().to_string();
        println!("{error}");
        error
    };
    assert!(error(&config("net_nosuch0"), one).contains("A device is a PCI address or one of net_af_packet"));
    assert!(error(&config("net_pcap9,rx_pcap=/nonexistent.pcap"), one).contains("file of rx_pcap"));
    assert!(error(&config("0000:ff:1f.7"), one).contains("dpdk-devbind.py"));
    assert!(error(&config("net_af_packet9,iface=nosuch0"), one).contains("no interface \"nosuch0\""));
    let (_port, _queues) = open(eal, "net_ring_taken", &pool);
    assert!(error(&config("net_ring_taken"), one).contains("open already"));
    let mut hungry = config("net_ring_hungry");
    hungry.rx_descriptors = 4096;
    // 512 and two bursts are promised to the port above.
    assert!(error(&hungry, one).contains("hold up to 4992 buffers of a pool of 2048"));
    assert!(error(&config("net_af_xdp9,iface=lo"), one).contains("af_xdp keeps 4096 at least"));
    let many: Vec<_> = (0..40).map(|_| pool.clone()).collect();
    assert!(
        error(&config("net_ring_many"), &many).contains("need 40 queue pairs, the driver net_ring has 16")
    );
    let mut mtu = config("net_ring_mtu");
    mtu.mtu = Some(1400);
    assert!(error(&mtu, one).contains("leave `mtu` out"));
    let memory = Mempool::new(eal, 4_000_000, None)
        .map(drop)
        .unwrap_err()
        .to_string();
    assert!(memory.contains("Raise `memory`"), "{memory}");
    // A device that failed can be opened once the mistake is mended.
    drop(open(eal, "net_ring_hungry", &pool));
}
