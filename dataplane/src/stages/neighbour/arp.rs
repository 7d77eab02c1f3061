//! ARP requests for service addresses (RFC 826), probes and claims (RFC 5227).

use super::write_macs;
use crate::counters::{Counter, Counters};
use crate::io::Window;
use crate::stages::Layers;
use crate::stages::classify::PortView;
use crate::wire::{arp, at_mut, eth};

/// Turns a request into its reply; returns the frame length.
///
/// Probes (sender 0.0.0.0) are answered, which defends the address. A packet whose sender claims an
/// address of ours from another MAC address counts as a conflict and is not answered.
pub(super) fn reply(
    window: &mut Window,
    layers: &Layers,
    port: &PortView,
    counters: &mut Counters,
) -> Result<usize, Counter> {
    let l3 = usize::from(layers.l3);
    let bytes = at_mut(window, l3).ok_or(Counter::DropArp)?;
    let request = arp::Packet::read(bytes).ok_or(Counter::DropArp)?;
    if port.addresses.lookup_v4(request.sender_ip).is_some() {
        if request.sender_mac != port.mac {
            counters.bump(Counter::AddressConflicts);
        }
        return Err(Counter::DropArp);
    }
    let [first, ..] = request.sender_ip;
    let sender = !eth::is_group(request.sender_mac)
        && request.sender_mac != [0; 6]
        && first != 127
        && !(224..240).contains(&first)
        && request.sender_ip != [255; 4];
    let ours = port.addresses.lookup_v4(request.target_ip).is_some();
    if !sender || !ours || request.operation != arp::REQUEST {
        return Err(Counter::DropArp);
    }
    let reply = arp::Packet {
        operation: arp::REPLY,
        sender_mac: port.mac,
        sender_ip: request.target_ip,
        target_mac: request.sender_mac,
        target_ip: request.sender_ip,
    };
    reply.write(bytes);
    write_macs(window, request.sender_mac, port.mac);
    Ok(l3 + arp::PACKET_LEN)
}
