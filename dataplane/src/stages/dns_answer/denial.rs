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

/// Labels that a short name has at most: each is two bytes or more.
const LABELS: usize = 16;

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
        q.key.clear_tail();
        let node = match q.status {
            Status::Short => {
                let mut starts = [0u8; LABELS];
                let labels = walk(q, &mut starts)?;
                snapshot.names.closest_encloser(&q.key, &starts, labels)?
            }
            Status::Answer => snapshot
                .names
                .closest_encloser(&q.key, &q.offsets, q.labels as usize)?,
            _ => return None,
        };
        let (node, _) = node;
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
        Some(reply.finish_usual(0, dns::rcode::NXDOMAIN, self.seconds))
    }
}

/// Where the labels of a short name start, and how many it has; `None` when it does not end where it should.
#[inline(always)]
fn walk(q: &Located, starts: &mut [u8; LABELS]) -> Option<usize> {
    let name = q.key.first_block();
    let (mut at, mut labels) = (0, 0);
    while at + 1 < q.key.len() {
        let label = name.get(at % name.len()).map_or(0, |label| *label as usize);
        if let Some(start) = starts.get_mut(labels % LABELS) {
            *start = at as u8;
        }
        if label > dns::LABEL_MAX {
            return None;
        }
        labels += 1;
        at += 1 + label;
    }
    (at + 1 == q.key.len()).then_some(labels)
}
