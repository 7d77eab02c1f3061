//! Which connections are open, how many there may be, and which has to go for a new one. Owned by the TCP
//! thread; called by `listener` and `connection`.
//!
//! Where a limit is reached, the connection that has waited longest for a query gives way (RFC 7766
//! section 6.2.2: per client; RFC 9210 section 4.2: in all). With none waiting, the new one is refused.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::rc::Rc;
use std::time::Instant;
use tokio::sync::Notify;

/// Prefix of an IPv6 client, bits: one site's hosts count as one client.
const V6_CLIENT_BITS: u32 = 64;

/// Limits on connections.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// Connections in all.
    pub(super) total: usize,
    /// Connections of one IPv4 address or one IPv6 /64.
    pub(super) per_client: usize,
}

/// Which limit a new connection ran into.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Limit {
    /// The client's own.
    Client,
    /// That of all.
    Total,
}

struct Open {
    client: IpAddr,
    /// Since when it waits for a query; `None` while replies are on their way.
    waits_since: Option<Instant>,
    close: Rc<Notify>,
}

/// The open connections.
pub(super) struct Connections {
    limits: Limits,
    open: HashMap<u64, Open>,
    per_client: HashMap<IpAddr, usize>,
    next: u64,
}

/// A connection that was let in.
#[derive(Debug)]
pub(super) struct Admitted {
    /// Its number, for [`Connections::waits`] and [`Connections::left`].
    pub(super) id: u64,
    /// Told when it has to close.
    pub(super) close: Rc<Notify>,
    /// The limit for which another one was told to close.
    pub(super) evicted: Option<Limit>,
}

/// Whose limit an address counts against.
fn client_of(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(_) => address,
        IpAddr::V6(v6) => match v6.to_ipv4_mapped() {
            Some(v4) => v4.into(),
            None => {
                Ipv6Addr::from_bits(v6.to_bits() >> (128 - V6_CLIENT_BITS) << (128 - V6_CLIENT_BITS)).into()
            }
        },
    }
}

impl Connections {
    /// None open yet.
    pub(super) fn new(limits: Limits) -> Self {
        Self {
            limits,
            open: HashMap::new(),
            per_client: HashMap::new(),
            next: 0,
        }
    }

    /// How many are open.
    pub(super) fn len(&self) -> usize {
        self.open.len()
    }

    /// Lets a new connection in, if need be in place of one that waits.
    pub(super) fn enter(&mut self, address: IpAddr, now: Instant) -> Result<Admitted, Limit> {
        let client = client_of(address);
        let of_client = self.per_client.get(&client).copied().unwrap_or(0);
        let mut evicted = None;
        if of_client >= self.limits.per_client {
            self.evict(|open| open.client == client).ok_or(Limit::Client)?;
            evicted = Some(Limit::Client);
        } else if self.open.len() >= self.limits.total {
            self.evict(|_| true).ok_or(Limit::Total)?;
            evicted = Some(Limit::Total);
        }
        let (id, close) = (self.next, Rc::new(Notify::new()));
        self.next += 1;
        *self.per_client.entry(client).or_default() += 1;
        let open = Open {
            client,
            waits_since: Some(now),
            close: close.clone(),
        };
        self.open.insert(id, open);
        Ok(Admitted { id, close, evicted })
    }

    /// Tells the connection that waits longest to close, of those that `which` takes. It is out of the count at
    /// once. A walk over all: their number is bounded, and it happens at a limit alone.
    fn evict(&mut self, which: impl Fn(&Open) -> bool) -> Option<()> {
        let waiting = self.open.iter().filter(|(_, open)| which(open));
        let longest = waiting
            .filter_map(|(&id, open)| Some((open.waits_since?, id)))
            .min();
        let (_, id) = longest?;
        if let Some(open) = self.open.get(&id) {
            open.close.notify_one();
        }
        self.left(id);
        Some(())
    }

    /// Notes since when a connection waits for a query; `None`: it is at work.
    pub(super) fn waits(&mut self, id: u64, since: Option<Instant>) {
        if let Some(open) = self.open.get_mut(&id) {
            open.waits_since = since;
        }
    }

    /// Notes that a connection is closed. Also for one that was told to.
    pub(super) fn left(&mut self, id: u64) {
        let Some(open) = self.open.remove(&id) else { return };
        if let Some(count) = self.per_client.get_mut(&open.client) {
            *count -= 1;
            if *count == 0 {
                self.per_client.remove(&open.client);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn connections(total: usize, per_client: usize) -> (Connections, impl Fn(u64) -> Instant) {
        let start = Instant::now();
        let limits = Limits { total, per_client };
        (Connections::new(limits), move |s| start + Duration::from_secs(s))
    }

    /// Whether it was told to close: the permit that `notify_one` leaves is there at once.
    fn told(admitted: &Admitted) -> bool {
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        std::pin::pin!(admitted.close.notified())
            .as_mut()
            .poll(&mut context)
            .is_ready()
    }

    #[test]
    fn a_clients_longest_waiting_connection_gives_way() {
        let (mut open, at) = connections(100, 2);
        let client = address("192.0.2.1");
        let first = open.enter(client, at(0)).unwrap();
        let second = open.enter(client, at(1)).unwrap();
        let other = open.enter(address("192.0.2.2"), at(0)).unwrap();
        // The first has asked since; the second waits longer now.
        open.waits(first.id, Some(at(5)));
        let third = open.enter(client, at(6)).unwrap();
        assert_eq!((third.evicted, open.len()), (Some(Limit::Client), 3));
        assert!(!told(&first) && told(&second) && !told(&other));
        // That it leaves afterwards counts once.
        open.left(second.id);
        assert_eq!(open.len(), 3);
        // At work: not to be closed, so the new one is refused.
        open.waits(first.id, None);
        open.waits(third.id, None);
        assert_eq!(open.enter(client, at(7)).unwrap_err(), Limit::Client);
        open.left(first.id);
        assert_eq!(open.enter(client, at(8)).unwrap().evicted, None);
    }

    #[test]
    fn the_total_holds_over_all_clients() {
        let (mut open, at) = connections(2, 2);
        let first = open.enter(address("192.0.2.1"), at(0)).unwrap();
        let second = open.enter(address("192.0.2.2"), at(1)).unwrap();
        let third = open.enter(address("192.0.2.3"), at(2)).unwrap();
        assert_eq!((third.evicted, open.len()), (Some(Limit::Total), 2));
        assert!(told(&first) && !told(&second));
        open.waits(second.id, None);
        open.waits(third.id, None);
        assert_eq!(open.enter(address("192.0.2.4"), at(3)).unwrap_err(), Limit::Total);
        assert_eq!(open.len(), 2);
    }

    #[test]
    fn one_ipv6_site_is_one_client() {
        let (mut open, at) = connections(100, 1);
        let first = open.enter(address("2001:db8::1"), at(0)).unwrap();
        open.enter(address("2001:db8::2"), at(1)).unwrap();
        assert!(told(&first));
        let other = open.enter(address("2001:db8:0:1::1"), at(1)).unwrap();
        assert_eq!(other.evicted, None);
        let v4 = open.enter(address("::ffff:192.0.2.1"), at(1)).unwrap();
        open.enter(address("::ffff:192.0.2.2"), at(1)).unwrap();
        assert!(!told(&v4));
    }

    #[test]
    fn nothing_is_kept_of_who_left() {
        let (mut open, at) = connections(100, 3);
        let ids: Vec<u64> = (0..50u8)
            .map(|n| open.enter(IpAddr::from([10, 0, 0, n]), at(0)).unwrap().id)
            .collect();
        ids.into_iter().for_each(|id| open.left(id));
        assert_eq!((open.len(), open.per_client.len()), (0, 0));
    }
}
