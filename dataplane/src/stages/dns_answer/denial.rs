//! The usual denial, in few instructions: a short name that is not there, below a name of a zone that has no wildcard,
//! cut or the like. What random names ask for, so what a flood of them costs.
//!
//! Called by the stage when there was no usual answer. As in `usual`, whatever is not usual gets no answer here:
//! `Engine::missing` alone defines what is right; a test holds the two together.

use super::parse::{Located, Status};
use super::write::Reply;
use super::{Engine, Transport};
use crate::tables::names::Node;
use crate::tables::{NONE, Snapshot};
use crate::wire::dns::{self, rtype};

impl Engine {
    /// Writes NXDOMAIN with the zone's SOA over the query and returns its length. It is counted so.
    #[inline(always)]
    pub(super) fn deny<const N: usize>(
        &self,
        snapshot: &Snapshot,
        q: &mut Located,
        buffer: &mut [u8; N],
        transport: Transport,
    ) -> Option<usize> {
        // No slot has the hash's tag, so the name is not there if it ends where its first zero byte is.
        if q.found.node != NONE || matches!(q.qtype, rtype::AXFR | rtype::IXFR) {
            return None;
        }
        let names = &snapshot.names;
        let (node, _) = match q.status {
            Status::Short => {
                q.key.clear_short_tail();
                let starts = Starts::of(q)?;
                names.closest_encloser(&q.key, starts.labels, |depth| starts.get(depth))?
            }
            Status::Answer => {
                q.key.clear_tail();
                let labels = q.labels as usize;
                names.closest_encloser(&q.key, labels, |depth| q.start(depth))?
            }
            _ => return None,
        };
        if !node.has_none(Node::NOT_PLAIN) {
            return None;
        }
        q.account = node.zone;
        let zone = snapshot.zones.get(node.zone as usize)?;
        let blob = snapshot.answers.blob(zone.negative)?;
        let mut reply = Reply::start(snapshot, q, buffer, transport);
        if !reply.fits(blob.head.len as usize) {
            return None;
        }
        reply.blob(&blob);
        Some(reply.finish_usual(|| 0, dns::rcode::NXDOMAIN, self.seconds))
    }
}

/// Where the last labels of a short name start, five bits each, the last one lowest.
struct Starts {
    starts: u64,
    labels: usize,
}

impl Starts {
    /// Labels that there is room for.
    const ROOM: usize = 12;

    /// Of a query's name; `None` when it does not end where its first zero byte is, or has more labels.
    #[inline(always)]
    fn of(q: &Located) -> Option<Self> {
        let name = q.key.first_block();
        let root = q.key.len().wrapping_sub(1);
        let (mut starts, mut labels, mut at) = (0, 0, 0);
        while at < root {
            // A length that is none leads past the end, as the name is shorter.
            let len = name.get(at % name.len()).map_or(0, |len| *len as usize);
            starts = starts << 5 | at as u64;
            labels += 1;
            at += 1 + len;
        }
        (at == root && labels <= Self::ROOM).then_some(Self { starts, labels })
    }

    /// Where the ancestor of so many labels starts.
    #[inline(always)]
    fn get(&self, depth: usize) -> Option<usize> {
        Some((self.starts >> (5 * (depth - 1) % 64)) as usize & 31)
    }
}
