//! The memory port behaves as the traits say. Run by `cargo test`.

use super::*;

fn small() -> (MemoryPort, MemoryWire) {
    MemoryPort::new(MemoryConfig {
        buffers: 4,
        frames: 3,
        stale: Some(0xa5),
        ..MemoryConfig::default()
    })
}

#[test]
fn frames_go_through_in_order_and_the_pool_is_whole_again() {
    let (mut port, wire) = small();
    for frame in [&b"first"[..], b"second frame", b"third"] {
        assert!(wire.inject(frame));
    }
    assert!(!wire.inject(b"one too many"));
    let mut burst = Burst::new();
    port.rx(&mut burst);
    assert_eq!((burst.len(), wire.waiting(), wire.pool_free()), (3, 0, 1));
    assert_eq!(burst.as_slice()[1].frame(), b"second frame");
    assert_eq!(burst.as_mut_slice()[0].window()[4..7], [b't', 0xa5, 0xa5]);
    burst.as_mut_slice()[0].window()[0] = b'F';
    burst.as_mut_slice()[1].set_len(6);
    assert_eq!(port.tx(&mut burst), 3);
    assert!(burst.is_empty());
    assert_eq!(wire.take_all(), [&b"First"[..], b"second", b"third"]);
    assert_eq!((wire.sent(), wire.pool_free()), (3, 4));
}

#[test]
fn what_transmit_refuses_stays_in_order() {
    let (mut port, wire) = small();
    for frame in [b"a", b"b", b"c"] {
        wire.inject(frame);
    }
    let mut burst = Burst::new();
    port.rx(&mut burst);
    wire.limit_tx(Some(1));
    assert_eq!(port.tx(&mut burst), 1);
    assert_eq!(burst.iter().map(|b| b.frame()).collect::<Vec<_>>(), [b"b", b"c"]);
    wire.limit_tx(Some(0));
    assert_eq!(port.tx(&mut burst), 0);
    wire.limit_tx(None);
    assert_eq!(port.tx(&mut burst), 2);
    // The wire holds three: a fourth is refused until one is taken.
    assert!(burst.push(port.alloc().unwrap()).is_ok());
    assert_eq!(port.tx(&mut burst), 0);
    assert_eq!(wire.take().unwrap().bytes, b"a");
    assert_eq!(port.tx(&mut burst), 1);
}

#[test]
fn an_empty_pool_is_counted_and_frames_wait() {
    let (mut port, wire) = small();
    let held: Vec<_> = core::iter::from_fn(|| port.alloc()).collect();
    assert_eq!((held.len(), wire.pool_empty()), (4, 1));
    wire.inject(b"waits");
    let mut burst = Burst::new();
    port.rx(&mut burst);
    assert_eq!((burst.len(), wire.waiting(), wire.pool_empty()), (0, 1, 2));
    drop(held);
    port.rx(&mut burst);
    assert_eq!((burst.len(), wire.waiting()), (1, 0));
}

#[test]
fn shapes_are_reported_and_a_reused_buffer_forgets_them() {
    let (mut port, wire) = small();
    wire.inject_shaped(&[7; 100], Shape::MultiSegment);
    wire.inject_shaped(&[8; 5000], Shape::Oversized);
    let mut burst = Burst::new();
    port.rx(&mut burst);
    let seen: Vec<_> = burst
        .iter()
        .map(|b| (b.shape(), b.len(), b.frame().len()))
        .collect();
    assert_eq!(
        seen,
        [(Shape::MultiSegment, 100, 100), (Shape::Oversized, 5000, 2048)]
    );
    burst.as_mut_slice()[0].set_len(9000);
    assert_eq!(burst.as_slice()[0].len(), 2048);
    burst.clear();
    for _ in 0..4 {
        assert!(burst.push(port.alloc().unwrap()).is_ok());
    }
    assert!(burst.iter().all(|b| b.shape() == Shape::Whole && b.is_empty()));
}

#[test]
fn replay_never_ends_and_turns_around() {
    let (mut port, wire) = MemoryPort::new(MemoryConfig {
        buffers: 40,
        ..MemoryConfig::default()
    });
    wire.inject(b"later");
    wire.replay(&[b"x", b"y", b"z"]);
    let mut burst = Burst::new();
    for _ in 0..100 {
        port.rx(&mut burst);
        assert_eq!(burst.len(), 32);
        assert_eq!(port.tx(&mut burst), 32);
    }
    port.rx(&mut burst);
    // 3200 frames went: 3200 mod 3 = 2, so the next one is the third.
    assert_eq!(
        (burst.as_slice()[0].frame(), burst.as_slice()[1].frame()),
        (&b"z"[..], &b"x"[..])
    );
    assert_eq!((wire.sent(), wire.take()), (3200, None));
    burst.clear();
    wire.stop_replay();
    port.rx(&mut burst);
    assert_eq!(burst.as_slice()[0].frame(), b"later");
}

#[test]
fn buffers_outlive_their_port() {
    let (mut port, wire) = small();
    let mut kept = port.alloc().unwrap();
    drop(port);
    kept.window()[0] = 1;
    drop(kept);
    assert_eq!(wire.pool_free(), 0);
    assert_eq!(Arc::strong_count(&wire.shared), 1);
}

#[test]
fn checksums_are_written_on_request() {
    let (mut port, wire) = MemoryPort::new(MemoryConfig {
        checksum_offload: true,
        ..MemoryConfig::default()
    });
    // IPv4 header of the well-known worked example: checksum b861, protocol UDP, 192.168.0.1 to
    // 192.168.0.199. Its UDP datagram here is 8 bytes of header and "hi!".
    let header = *b"\x45\x00\x00\x73\x00\x00\x40\x00\x40\x11\x00\x00\xc0\xa8\x00\x01\xc0\xa8\x00\xc7";
    let mut frame = vec![0xee; 14];
    frame.extend(header);
    // Pseudo-header by hand: c0a8 + 0001 + c0a8 + 00c7 + 0011 + 000b = 18234, folded 8235.
    frame.extend([0x04, 0xd2, 0x00, 0x35, 0x00, 0x0b, 0x82, 0x35]);
    frame.extend(b"hi!");
    frame.extend([0xff; 9]); // Ethernet padding is not summed
    let mut buffer = port.alloc().unwrap();
    buffer.window()[..frame.len()].copy_from_slice(&frame);
    buffer.set_len(frame.len());
    buffer.request_checksum(ChecksumOffload {
        l2_len: 14,
        l3_len: 20,
        ipv4: true,
    });
    let mut burst = Burst::new();
    assert!(burst.push(buffer).is_ok());
    port.tx(&mut burst);
    let sent = wire.take().unwrap();
    assert_eq!(sent.bytes[24..26], [0xb8, 0x61]);
    // 8235 + 04d2 + 0035 + 000b + 6869 + 2100 = 110b0, folded 10b1, complement ef4e.
    assert_eq!(sent.bytes[40..42], [0xef, 0x4e]);
    assert!(sent.checksum.is_some());
    // The next user of that buffer asked for nothing.
    assert!(burst.push(port.alloc().unwrap()).is_ok());
    port.tx(&mut burst);
    assert_eq!(wire.take().unwrap().checksum, None);
}
