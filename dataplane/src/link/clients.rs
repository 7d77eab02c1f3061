//! The ring of clients that were seen, from a worker to control: one now and then of those that services chose for, so that
//! round-trip times to them can be measured.
//!
//! Filled in the worker's housekeeping; what finds it full is dropped, since the next will do as well.

use super::spsc::{Consumer, Producer, ring};
use std::net::IpAddr;

/// An address in a slot of the ring.
#[derive(Clone, Copy, Debug, Default)]
struct Slot {
    address: [u8; 16],
    v6: bool,
}

/// The end that clients go in.
pub struct ClientSender(Producer<Slot>);

/// The end that clients come out.
pub struct ClientReceiver(Consumer<Slot>);

/// A ring of at least `slots` clients.
pub fn client_ring(slots: usize) -> (ClientSender, ClientReceiver) {
    let (producer, consumer) = ring(slots);
    (ClientSender(producer), ClientReceiver(consumer))
}

impl ClientSender {
    /// Sends a client; false when the ring is full. Never waits.
    #[inline]
    pub fn send(&mut self, client: IpAddr) -> bool {
        let slot = match client {
            IpAddr::V4(a) => Slot {
                address: a.to_ipv6_mapped().octets(),
                v6: false,
            },
            IpAddr::V6(a) => Slot {
                address: a.octets(),
                v6: true,
            },
        };
        self.0.write(|place| *place = slot).is_some()
    }
}

impl ClientReceiver {
    /// The oldest client, if there is one. Never waits.
    #[inline]
    pub fn receive(&mut self) -> Option<IpAddr> {
        let slot = self.0.read(|slot| *slot)?;
        let [.., a, b, c, d] = slot.address;
        Some(match slot.v6 {
            true => IpAddr::from(slot.address),
            false => IpAddr::from([a, b, c, d]),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_of_both_families_come_out_in_order() {
        let (mut sender, mut receiver) = client_ring(2);
        let clients: [IpAddr; 2] = ["192.0.2.1".parse().unwrap(), "::ffff:192.0.2.1".parse().unwrap()];
        assert!(clients.iter().all(|client| sender.send(*client)));
        assert!(!sender.send(clients[0]));
        assert_eq!([receiver.receive(), receiver.receive()], clients.map(Some));
        assert_eq!(receiver.receive(), None);
    }
}
