//! The addresses that the generator sends from: a prefix, less what is not a host and who else lives
//! there. A client is an index into it, of at most 32 bits.

use ipnet::IpNet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The source prefix and its usable host part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Clients {
    net: IpNet,
    /// The network address as a number, in the family's width.
    base: u128,
    /// First client's host part, and how many there are.
    first: u32,
    count: u64,
    /// Host part of the server or gateway when it is inside the prefix: never a client.
    taken: Option<u32>,
}

impl Clients {
    /// The clients of `net`, without the network and broadcast address (IPv4 up to /30), without
    /// the subnet-router anycast address (IPv6), and without `neighbour`. IPv6 uses the lowest 2^32
    /// addresses. `None` when nobody is left.
    pub fn new(net: IpNet, neighbour: IpAddr) -> Option<Self> {
        let net = net.trunc();
        let host_bits = u32::from(net.max_prefix_len() - net.prefix_len());
        let size = 1u64 << host_bits.min(32);
        let (first, count) = match (net, host_bits) {
            (_, 0) => (0, 1),
            (IpNet::V4(_), 1) => (0, 2),
            (IpNet::V4(_), _) => (1, size - 2),
            (IpNet::V6(_), _) => (1, size - 1),
        };
        let mut clients = Self {
            net,
            base: number(net.network()),
            first,
            count,
            taken: None,
        };
        clients.taken = clients.index(neighbour);
        (count > u64::from(clients.taken.is_some())).then_some(clients)
    }

    /// A client for 32 random bits, evenly.
    #[inline]
    pub fn draw(&self, random: u32) -> u32 {
        let client = self.first + ((u64::from(random) * self.count) >> 32) as u32;
        if self.taken != Some(client) {
            return client;
        }
        // The next one, or the first after the last. With `count` > 1 that one is free.
        let next = client - self.first + 1;
        self.first + if u64::from(next) == self.count { 0 } else { next }
    }

    /// The client that has this address.
    #[inline]
    pub fn index(&self, address: IpAddr) -> Option<u32> {
        if address.is_ipv4() != self.net.addr().is_ipv4() {
            return None;
        }
        let host = u32::try_from(number(address).checked_sub(self.base)?).ok()?;
        let inside = u64::from(host.checked_sub(self.first)?) < self.count;
        (inside && self.taken != Some(host)).then_some(host)
    }

    /// The client's address.
    pub fn address(&self, client: u32) -> IpAddr {
        let address = self.base + u128::from(client);
        match self.net {
            IpNet::V4(_) => IpAddr::V4(Ipv4Addr::from(address as u32)),
            IpNet::V6(_) => IpAddr::V6(Ipv6Addr::from(address)),
        }
    }

    /// The prefix.
    pub fn net(&self) -> IpNet {
        self.net
    }

    /// Low 32 bits of the network address: a client's low bits are these plus the client.
    #[inline]
    pub(crate) fn base_low(&self) -> u32 {
        self.base as u32
    }
}

fn number(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(a) => u128::from(a.to_bits()),
        IpAddr::V6(a) => a.to_bits(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(net: &str, neighbour: &str) -> Vec<String> {
        let clients = Clients::new(net.parse().unwrap(), neighbour.parse().unwrap()).unwrap();
        let step = (1u64 << 32) / clients.count;
        let mut out: Vec<_> = (0..clients.count)
            .map(|n| clients.draw((n * step + step / 2) as u32))
            .collect();
        out.dedup();
        for &c in &out {
            assert_eq!(clients.index(clients.address(c)), Some(c));
        }
        out.into_iter().map(|c| clients.address(c).to_string()).collect()
    }

    #[test]
    fn hosts_only() {
        assert_eq!(all("10.0.0.0/30", "192.0.2.1"), ["10.0.0.1", "10.0.0.2"]);
        assert_eq!(all("10.0.0.6/31", "192.0.2.1"), ["10.0.0.6", "10.0.0.7"]);
        assert_eq!(all("10.0.0.9/32", "192.0.2.1"), ["10.0.0.9"]);
        assert_eq!(
            all("2001:db8::/126", "2001:db9::"),
            ["2001:db8::1", "2001:db8::2", "2001:db8::3"]
        );
        assert_eq!(all("2001:db8::5/128", "2001:db9::"), ["2001:db8::5"]);
    }

    #[test]
    fn never_the_neighbour() {
        assert_eq!(all("10.0.0.0/30", "10.0.0.1"), ["10.0.0.2"]);
        assert_eq!(all("10.0.0.0/30", "10.0.0.2"), ["10.0.0.1"]);
        assert!(Clients::new("10.0.0.9/32".parse().unwrap(), "10.0.0.9".parse().unwrap()).is_none());
        let clients = Clients::new("10.0.0.0/29".parse().unwrap(), "10.0.0.1".parse().unwrap()).unwrap();
        for outside in [
            "10.0.0.0",
            "10.0.0.1",
            "10.0.0.7",
            "10.0.0.8",
            "9.255.255.255",
            "::a00:2",
        ] {
            assert_eq!(clients.index(outside.parse().unwrap()), None, "{outside}");
        }
    }

    #[test]
    fn wide_prefixes() {
        let clients = Clients::new("2001:db8::/32".parse().unwrap(), "2001:db9::".parse().unwrap()).unwrap();
        assert_eq!(
            clients.address(clients.draw(u32::MAX)).to_string(),
            "2001:db8::ffff:ffff"
        );
        let clients = Clients::new("0.0.0.0/0".parse().unwrap(), "::1".parse().unwrap()).unwrap();
        assert_eq!(
            clients.address(clients.draw(u32::MAX)).to_string(),
            "255.255.255.254"
        );
    }
}
