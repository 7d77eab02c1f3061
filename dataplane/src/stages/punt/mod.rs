//! Hands a packet to control's exception thread: copied, unchanged, by the worker's punt ring. Called by
//! the worker for the punt lane. What comes back is injected by the worker's other ring.
#![deny(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::disallowed_methods
)]

use super::Verdict;
use crate::counters::Counter;
use crate::io::Window;
use crate::link::packets::{PacketRefused, PacketSender};

/// Copies the frame in `window[..len]`, received on the port of that index, tags and padding included.
///
/// Never waits: a full ring turns the verdict into a drop.
#[inline]
pub fn punt(window: &Window, len: usize, port: u8, ring: &mut PacketSender) -> Verdict {
    let Some(frame) = window.get(..len) else {
        return Verdict::Drop(Counter::DropOversized);
    };
    match ring.send(port, frame) {
        Ok(()) => Verdict::Punt,
        Err(PacketRefused::Full) => Verdict::Drop(Counter::DropPuntFull),
        Err(PacketRefused::TooLong) => Verdict::Drop(Counter::DropOversized),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::io::WINDOW;
    use crate::link::packets::packet_ring;
    use crate::stages::testkit::{Packet, udp};

    #[test]
    fn other_ports_of_a_burst_with_queries_arrive_unchanged() {
        let (mut ring, mut control) = packet_ring(4);
        let frames = [54, 5353, 853].map(|port| {
            let mut packet = Packet::query_v4().with(17, udp(40000, port, b"not dns"));
            packet.tags = vec![(0x88a8, 9), (0x8100, 8)];
            packet.padding = 5;
            packet
        });
        for packet in &frames {
            let (window, len) = packet.window();
            assert_eq!(punt(&window, len, 3, &mut ring), Verdict::Punt);
        }
        for packet in &frames {
            let want = Some((3, packet.build()));
            assert_eq!(control.receive(|port, frame| (port, frame.to_vec())), want);
        }
    }

    #[test]
    fn a_full_ring_is_a_drop_with_its_reason() {
        let (mut ring, mut control) = packet_ring(2);
        let (window, len) = Packet::query_v4().window();
        let full = Verdict::Drop(Counter::DropPuntFull);
        let verdicts = [(); 3].map(|()| punt(&window, len, 0, &mut ring));
        assert_eq!(verdicts, [Verdict::Punt, Verdict::Punt, full]);
        assert_eq!(control.receive(|_, frame| frame.len()), Some(len));
        assert_eq!(punt(&window, len, 0, &mut ring), Verdict::Punt);
        assert_eq!(
            punt(&window, WINDOW + 1, 0, &mut ring),
            Verdict::Drop(Counter::DropOversized)
        );
    }
}
