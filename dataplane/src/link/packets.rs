//! Rings of copied packets: punts to control, injections to a worker.
//!
//! Mbufs never leave their worker, so packets cross as bytes in fixed slots. Only the packet's bytes are
//! copied, straight into the slot and straight out of it.

use super::spsc::{Consumer, Producer, ring};
use crate::io::{WINDOW, Window};

/// One slot. Bytes past the length are stale.
struct Slot {
    port: u8,
    len: u16,
    bytes: Window,
}

impl Default for Slot {
    fn default() -> Self {
        Self {
            port: 0,
            len: 0,
            bytes: [0; WINDOW],
        }
    }
}

/// Why a packet was not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PacketRefused {
    /// The ring is full.
    Full,
    /// The packet is longer than a slot of [`WINDOW`] bytes.
    TooLong,
}

/// The end that packets go in.
pub struct PacketSender(Producer<Slot>);

/// The end that packets come out.
pub struct PacketReceiver(Consumer<Slot>);

/// A ring of at least `slots` packets.
pub fn packet_ring(slots: usize) -> (PacketSender, PacketReceiver) {
    let (producer, consumer) = ring(slots);
    (PacketSender(producer), PacketReceiver(consumer))
}

impl PacketSender {
    /// Copies `frame`, from or for the port of that index. Never waits: the caller counts a refusal.
    #[inline]
    pub fn send(&mut self, port: u8, frame: &[u8]) -> Result<(), PacketRefused> {
        if frame.len() > WINDOW {
            return Err(PacketRefused::TooLong);
        }
        self.0
            .write(|slot| {
                slot.port = port;
                slot.len = frame.len() as u16;
                if let Some(bytes) = slot.bytes.get_mut(..frame.len()) {
                    bytes.copy_from_slice(frame);
                }
            })
            .ok_or(PacketRefused::Full)
    }
}

impl PacketReceiver {
    /// Lets `with` use the oldest packet (port index, frame), then frees its slot. `None` when there is
    /// no packet. Never waits.
    #[inline]
    pub fn receive<R>(&mut self, with: impl FnOnce(u8, &[u8]) -> R) -> Option<R> {
        self.0.read(|slot| {
            with(
                slot.port,
                slot.bytes.get(..usize::from(slot.len)).unwrap_or_default(),
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_come_out_as_they_went_in() {
        let (mut sender, mut receiver) = packet_ring(4);
        let longest: Vec<u8> = (0..WINDOW).map(|n| n as u8).collect();
        sender.send(3, &longest).unwrap();
        sender.send(0, b"short").unwrap();
        sender.send(255, b"").unwrap();
        assert_eq!(
            receiver.receive(|port, frame| (port, frame.to_vec())),
            Some((3, longest.clone()))
        );
        assert_eq!(
            receiver.receive(|port, frame| (port, frame.to_vec())),
            Some((0, b"short".to_vec()))
        );
        assert_eq!(
            receiver.receive(|port, frame| (port, frame.to_vec())),
            Some((255, vec![]))
        );
        assert_eq!(receiver.receive(|_, _| ()), None);
        // The next lap reuses the slot of the longest: none of its bytes may show.
        for n in 0..4 {
            sender.send(1, &[n]).unwrap();
        }
        for n in 0..4 {
            assert_eq!(receiver.receive(|_, frame| frame.to_vec()), Some(vec![n]));
        }
    }

    #[test]
    fn refuses_what_does_not_fit() {
        let (mut sender, mut receiver) = packet_ring(2);
        assert_eq!(sender.send(0, &[0; WINDOW + 1]), Err(PacketRefused::TooLong));
        sender.send(0, b"a").unwrap();
        sender.send(0, b"b").unwrap();
        assert_eq!(sender.send(0, b"c"), Err(PacketRefused::Full));
        assert_eq!(receiver.receive(|_, frame| frame.to_vec()), Some(b"a".to_vec()));
        sender.send(0, b"d").unwrap();
        assert_eq!(receiver.receive(|_, frame| frame.to_vec()), Some(b"b".to_vec()));
        assert_eq!(receiver.receive(|_, frame| frame.to_vec()), Some(b"d".to_vec()));
    }
}
