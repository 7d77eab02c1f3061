//! The servers whose response latency is measured: from an address to a server, and how.
//!
//! Read by `stages::flow_latency` when it creates a flow. Control builds it with every snapshot whose client classes or
//! servers change, and keeps what a number means ([`Servers::get`]).

use super::classes::{Classes, Prefix};
use crate::flow::estimate::Rules;
use std::io;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU16, Ordering};

/// UDP ports that are taken for QUIC at most.
pub const QUIC_PORTS: usize = 4;

/// One measured server: the addresses of a prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Server {
    /// First address, zero beyond the length.
    pub address: IpAddr,
    /// Length of the prefix, bits: 32 or 128 for one address.
    pub len: u8,
    /// Site that it stands at, as control numbers sites; none for servers of no site.
    pub site: Option<u16>,
}

/// How flows are told and watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Watching {
    /// What the estimators go by.
    pub rules: Rules,
    /// UDP ports of QUIC; 0 for none.
    pub quic_ports: [u16; QUIC_PORTS],
    /// Bytes of a connection id that tell QUIC flows apart, 0 to 8: no more than the servers' ids are long. 0: addresses
    /// and ports alone.
    pub quic_id: u8,
    /// Whether clients' packets to addresses that are no server are watched too, as server 0.
    pub all: bool,
}

impl Default for Watching {
    fn default() -> Self {
        Self {
            rules: Rules::default(),
            quic_ports: [443, 0, 0, 0],
            quic_id: 8,
            all: false,
        }
    }
}

/// All measured servers.
#[derive(Debug)]
pub struct Servers {
    map: Classes,
    list: Vec<Server>,
    numbering: u16,
    /// How flows are told and watched.
    pub watching: Watching,
}

/// Numbers given so far.
static NUMBERING: AtomicU16 = AtomicU16::new(1);

impl Servers {
    /// Servers are numbered from 1 in the order given; where prefixes overlap the longest counts. Build it anew whenever
    /// client classes are numbered anew: flows look both up again when they see another table.
    ///
    /// # Errors
    /// More than 65,534 servers, or no memory.
    pub fn build(list: Vec<Server>, watching: Watching) -> io::Result<Self> {
        let (mut v4, mut v6) = (Vec::new(), Vec::new());
        for (at, server) in list.iter().enumerate() {
            let number = u16::try_from(at + 1).ok().filter(|&n| n < u16::MAX);
            let number = number.ok_or_else(|| io::Error::other("more than 65,534 servers are measured"))?;
            match server.address {
                IpAddr::V4(a) => v4.push(Prefix::v4(a.octets(), server.len, number)),
                IpAddr::V6(a) => v6.push(Prefix::v6(a.octets(), server.len, number)),
            }
        }
        Ok(Self {
            map: Classes::build(v4, v6, list.len() as u32 + 1)?,
            list,
            numbering: NUMBERING.fetch_add(1, Ordering::Relaxed),
            watching,
        })
    }

    /// Differs from that of the table before.
    #[inline(always)]
    pub fn numbering(&self) -> u16 {
        self.numbering
    }

    /// The server of an IPv4 address; 0: none.
    #[inline]
    pub fn find_v4(&self, address: [u8; 4]) -> u16 {
        self.map.find_v4(address).id
    }

    /// The server of an IPv6 address; 0: none.
    #[inline]
    pub fn find_v6(&self, address: [u8; 16]) -> u16 {
        self.map.find_v6(address).id
    }

    /// What a number means.
    pub fn get(&self, number: u16) -> Option<&Server> {
        self.list.get(usize::from(number).checked_sub(1)?)
    }

    /// All of them; the first is number 1.
    pub fn list(&self) -> &[Server] {
        &self.list
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(text: &str, len: u8, site: u16) -> Server {
        Server {
            address: text.parse().unwrap(),
            len,
            site: Some(site),
        }
    }

    #[test]
    fn the_longest_prefix_names_the_server() {
        let list = vec![
            server("203.0.113.0", 24, 0),
            server("203.0.113.7", 32, 1),
            server("2001:db8::", 32, 0),
            server("2001:db8::7", 128, 1),
        ];
        let servers = Servers::build(list.clone(), Watching::default()).unwrap();
        let v4 = |text: &str| servers.find_v4(text.parse::<std::net::Ipv4Addr>().unwrap().octets());
        let v6 = |text: &str| servers.find_v6(text.parse::<std::net::Ipv6Addr>().unwrap().octets());
        assert_eq!(["203.0.113.8", "203.0.113.7", "203.0.114.7"].map(v4), [1, 2, 0]);
        assert_eq!(["2001:db8:5::", "2001:db8::7", "2001:db9::7"].map(v6), [3, 4, 0]);
        assert_eq!(servers.get(2), Some(&list[1]));
        assert_eq!((servers.get(0), servers.get(5)), (None, None));
    }

    #[test]
    fn numberings_differ_and_numbers_are_bounded() {
        let build = |n: usize| Servers::build(vec![server("192.0.2.1", 32, 0); n], Watching::default());
        assert_ne!(build(1).unwrap().numbering(), build(1).unwrap().numbering());
        assert!(build(65_535).unwrap_err().to_string().contains("65,534 servers"));
    }
}
