//! The usual answers, in few instructions: a served name as guessed, with a static record set or the addresses of
//! a service whose members share a health word, within the size that the client accepts.
//!
//! Called by the engine before it takes every step. Whatever is not usual gets no answer here, and no more than a
//! position in a round has moved then: `Engine::answer_any` alone defines what is right; a test holds the two together.

use super::parse::{Located, Status};
use super::write::Reply;
use super::{Engine, Transport};
use crate::tables::names::Entry;
use crate::tables::plans::{Cell, Plans, Pool};
use crate::tables::{NONE, Snapshot};
use crate::wire::dns::{rcode, rtype};

impl Engine {
    /// The step before [`Engine::usual`]: draws the members of a service that shares a health word.
    #[inline(always)]
    pub(super) fn choose(&mut self, snapshot: &Snapshot, q: &mut Located) {
        q.drawn.count = self.draw(snapshot, q).unwrap_or(0);
    }

    /// Draws members; how many. `None` without a service.
    #[inline(always)]
    fn draw(&mut self, snapshot: &Snapshot, q: &mut Located) -> Option<u8> {
        let plans = &snapshot.plans;
        // There is none for `NONE`.
        let hot = plans.hot.get(q.found.service as usize)?;
        let pool = match q.qtype {
            rtype::A => &hot.v4,
            rtype::AAAA => &hot.v6,
            _ => return None,
        };
        let cell = snapshot.cells.get(q.cell as usize)?;
        let run = self.chooser.next_run(pool, cell, &mut q.drawn.first);
        run.or_else(|| Some(self.draw_others(plans, pool, cell, q)))
    }

    /// Draws members when they are no run of neighbours; how many.
    #[inline(never)]
    fn draw_others(&mut self, plans: &Plans, pool: &Pool, cell: &Cell, q: &mut Located) -> u8 {
        let weights = match q.qtype {
            rtype::A => &plans.weights_a,
            _ => &plans.weights_aaaa,
        };
        self.chooser
            .draw_in_word(plans, pool, cell, weights, &mut q.drawn)
    }

    /// Writes the reply over a query of a guessed name, and returns its length. It has NOERROR and answers, and is counted so.
    #[inline(always)]
    pub(super) fn usual<const N: usize>(
        &self,
        snapshot: &Snapshot,
        q: &Located,
        buffer: &mut [u8; N],
        transport: Transport,
    ) -> Option<usize> {
        debug_assert_eq!(q.status, Status::Short);
        let node = snapshot.names.confirm_short(q.found, &q.key)?;
        let reply = Reply::start(snapshot, q, buffer, transport);
        if q.found.service == NONE {
            return static_set(snapshot, reply, node.plain(q.qtype)?, self.seconds);
        }
        match q.qtype {
            rtype::A => addresses(q, &snapshot.plans.records_a, reply, self.seconds),
            rtype::AAAA => addresses(q, &snapshot.plans.records_aaaa, reply, self.seconds),
            _ => None,
        }
    }
}

/// The addresses of the members that were drawn.
#[inline(always)]
fn addresses<const N: usize, const M: usize>(
    q: &Located,
    records: &[[u8; M]],
    mut reply: Reply<'_, N>,
    now: u32,
) -> Option<usize> {
    let (first, count) = (q.drawn.first as usize, q.drawn.count as usize);
    if count == 0 || !reply.fits(count * M) {
        return None;
    }
    if q.drawn.first != NONE {
        reply.records(records.get(first..first + count)?);
    } else {
        for &member in q.drawn.members.iter().take(count) {
            reply.record(records.get(member as usize)?, 0xc00c);
        }
    }
    Some(reply.finish_usual(|| q.scope(), rcode::NOERROR, now))
}

/// A static record set of the name itself.
#[inline(always)]
fn static_set<const N: usize>(
    snapshot: &Snapshot,
    mut reply: Reply<'_, N>,
    entry: &Entry,
    now: u32,
) -> Option<usize> {
    let blob = snapshot.answers.blob(entry.blob)?;
    let len = blob.head.len as usize;
    if !reply.fits(len) {
        return None;
    }
    // Encoded for the name itself: its pointers are right as they are.
    reply.append(blob.data, len, blob.head.counts);
    Some(reply.finish_usual(|| 0, rcode::NOERROR, now))
}
