//! Announcements of service addresses: what tells neighbours that an address is here now.

use super::{nd, write_macs};
use crate::io::Window;
use crate::wire::{arp, at_mut, eth, ipv6, nd as wire_nd};
use std::net::IpAddr;

/// Writes the frame that announces `address` at `mac`: an ARP announcement (RFC 5227 section 3) or an
/// unsolicited advertisement to all nodes (RFC 4861 section 7.2.6), untagged. Returns its length.
///
/// Control injects one for each address of a port at start and after the link came back.
pub fn announce(window: &mut Window, mac: [u8; 6], address: IpAddr) -> usize {
    let (dst, ether_type) = match address {
        IpAddr::V4(_) => (eth::BROADCAST, eth::ETHER_TYPE_ARP),
        IpAddr::V6(_) => (eth::of_ipv6_multicast(ipv6::ALL_NODES), eth::ETHER_TYPE_IPV6),
    };
    write_macs(window, dst, mac);
    [window[12], window[13]] = ether_type.to_be_bytes();
    match address {
        IpAddr::V4(address) => {
            let packet = arp::Packet {
                operation: arp::REQUEST,
                sender_mac: mac,
                sender_ip: address.octets(),
                target_mac: [0; 6],
                target_ip: address.octets(),
            };
            if let Some(bytes) = at_mut(window, eth::HEADER_LEN) {
                packet.write(bytes);
            }
            eth::HEADER_LEN + arp::PACKET_LEN
        }
        IpAddr::V6(address) => {
            let flags = wire_nd::FLAG_OVERRIDE;
            nd::write(
                window,
                eth::HEADER_LEN,
                address.octets(),
                ipv6::ALL_NODES,
                flags,
                mac,
            )
            .unwrap_or(0)
        }
    }
}
