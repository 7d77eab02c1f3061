//! What a service answers with, by every step: the client's class, the cell that ranks the sites for it, a draw, and
//! the records of the members that were drawn.
//!
//! Called by the engine off the usual path, for a service's own name and behind chains of CNAMEs and DNAMEs; `usual` does the
//! same in few instructions for the pools that most services have.

use super::choose::{Asker, client_hash};
use super::write::Reply;
use super::{Client, Engine, Event, Located, Trace};
use crate::tables::classes::Class;
use crate::tables::plans::{Cell, Policy, RecordA, RecordAaaa, Service};
use crate::tables::{NONE, Snapshot};
use crate::wire::dns::rtype;

impl Engine {
    /// Appends a service's addresses, owned by the name at the pointer `owner`. Gives the ECS scope with it.
    pub(super) fn service<const N: usize, T: Trace>(
        &mut self,
        snapshot: &Snapshot,
        q: &Located,
        reply: &mut Reply<'_, N>,
        service: u32,
        owner: u16,
        trace: &mut T,
    ) -> (Choice, u8) {
        let plans = &snapshot.plans;
        let Some(ranked) = plans
            .service(service)
            .and_then(|service| rank(snapshot, q, service.policy))
        else {
            return (Choice::None { all_down: false }, 0);
        };
        ranked.tell(service, trace);
        let choice = match (plans.service(service), snapshot.cells.get(ranked.cell as usize)) {
            (Some(service), Some(cell)) => {
                trace.event(Event::Ranked(*cell));
                let asker = self.asker(snapshot, &ranked);
                self.addresses_of(snapshot, q, reply, service, cell, &asker, owner, trace)
            }
            _ => Choice::None { all_down: false },
        };
        (choice, ranked.scope)
    }

    /// What draws depend on beside tables and words.
    pub(super) fn asker(&self, snapshot: &Snapshot, ranked: &Ranked) -> Asker {
        let policy = snapshot.plans.policy(ranked.policy).copied().unwrap_or_default();
        Asker {
            hash: client_hash(ranked.client, policy.hashed_v4, policy.hashed_v6),
            seconds: self.seconds,
            window: policy.window,
        }
    }

    /// Draws among a service's addresses of the family that was asked for, and appends them.
    #[allow(clippy::too_many_arguments, reason = "as its neighbours")]
    pub(super) fn addresses_of<const N: usize, T: Trace>(
        &mut self,
        snapshot: &Snapshot,
        q: &Located,
        reply: &mut Reply<'_, N>,
        service: &Service,
        cell: &Cell,
        asker: &Asker,
        owner: u16,
        trace: &mut T,
    ) -> Choice {
        let plans = &snapshot.plans;
        let index = match q.qtype {
            rtype::A => service.v4,
            rtype::AAAA => service.v6,
            _ => return Choice::None { all_down: false },
        };
        let family = plans.family(q.qtype == rtype::AAAA);
        let Some(pool) = plans.pools.get(index as usize) else {
            return Choice::None { all_down: false };
        };
        let chosen = self.chooser.choose(plans, pool, cell, family, asker, trace);
        if chosen.all_down {
            reply.all_down();
        }
        let members = chosen
            .members
            .iter()
            .take(chosen.count)
            .map(|&member| member as usize);
        if chosen.count == 0 {
            let Some(blob) = snapshot.answers.blob(pool.fixed).filter(|_| pool.fixed != NONE) else {
                return Choice::None {
                    all_down: chosen.all_down,
                };
            };
            reply.blob_owned(&blob, owner);
        } else if q.qtype == rtype::A {
            if reply.has_room(chosen.count, size_of::<RecordA>()) {
                members
                    .filter_map(|at| plans.records_a.get(at))
                    .for_each(|record| reply.record(record, owner));
            }
        } else if reply.has_room(chosen.count, size_of::<RecordAaaa>()) {
            members
                .filter_map(|at| plans.records_aaaa.get(at))
                .for_each(|record| reply.record(record, owner));
        }
        Choice::Given
    }
}

/// Where a policy's sites are ranked for a client.
pub(super) struct Ranked {
    policy: u32,
    /// Index of the cell.
    pub(super) cell: u32,
    /// ECS scope of an answer by it, bits.
    pub(super) scope: u8,
    /// Whether it is the client subnet's.
    by_subnet: bool,
    class: Class,
    client: Client,
    explores: bool,
}

impl Ranked {
    /// Tells a tracer of it.
    pub(super) fn tell<T: Trace>(&self, service: u32, trace: &mut T) {
        trace.event(Event::Client {
            service,
            policy: self.policy,
            class: self.class,
            subnet: self.by_subnet,
            explores: self.explores,
        });
        trace.event(Event::Scope(self.scope));
    }
}

/// Finds the cell that ranks a policy's sites for the client.
pub(super) fn rank(snapshot: &Snapshot, q: &Located, policy: u32) -> Option<Ranked> {
    let settings = snapshot.plans.policy(policy)?;
    let place = settings.place();
    let (client, by_subnet) = q.client_at(place);
    let explores = place & Policy::PLACE_EXPLORES != 0 && explores(settings, q.id);
    let (cell, class) = rank_at(snapshot, client, place, || explores);
    // What is hashed of the address decides with the class: 0 bits without hashing.
    let hashed = match client {
        Client::V4(_) => settings.hashed_v4,
        Client::V6(_) => settings.hashed_v6,
    };
    let scope = scope_at(place, class).max(hashed);
    Some(Ranked {
        policy,
        cell,
        scope: if by_subnet { scope } else { 0 },
        by_subnet,
        class,
        client,
        explores,
    })
}

/// The cell and the client's class, by the place of a policy's cells. `explores` is asked where the policy does.
#[inline(always)]
pub(super) fn rank_at(
    snapshot: &Snapshot,
    client: Client,
    place: u32,
    explores: impl FnOnce() -> bool,
) -> (u32, Class) {
    let class = match client {
        Client::V4(address) => snapshot.classes.find_v4(address),
        Client::V6(address) => find_v6(snapshot, address),
    };
    let first = place & (Policy::CELLS_MAX - 1);
    let by_class = place & (Policy::PLACE_BY_CLASS | Policy::PLACE_EXPLORES);
    if by_class == Policy::PLACE_BY_CLASS {
        (first + class.id as u32, class)
    } else if by_class != 0 {
        (first + 2 * class.id as u32 + u32::from(explores()), class)
    } else {
        (first, class)
    }
}

/// Whether the query of this ID is one of those that explore: about `policy.explore` of 65,536, and never ID 0, which
/// `explain` asks with. IDs are random wherever they guard against forgery (RFC 5452 section 4.4).
#[inline(always)]
fn explores(policy: &Policy, id: u16) -> bool {
    let spread = id.wrapping_mul(0x9e37);
    spread.checked_add(policy.explore).is_none()
}

/// The same for the policy of a service.
#[inline(never)]
pub(super) fn service_explores(snapshot: &Snapshot, service: u32, id: u16) -> bool {
    let plans = &snapshot.plans;
    let policy = plans
        .service(service)
        .and_then(|service| plans.policy(service.policy));
    policy.is_some_and(|policy| explores(policy, id))
}

/// ECS scope of an answer by the cell of a class, bits.
#[inline(always)]
pub(super) fn scope_at(place: u32, class: Class) -> u8 {
    match place & Policy::PLACE_BY_CLASS {
        0 => 0,
        _ => class.depth,
    }
}

#[inline(never)]
fn find_v6(snapshot: &Snapshot, address: [u8; 16]) -> Class {
    snapshot.classes.find_v6(address)
}

/// What a service gave.
#[derive(Clone, Copy)]
pub(super) enum Choice {
    /// Addresses were appended, or would have been with more room.
    Given,
    /// It has no address of this family to give; by the all-down rule or since it has none at all.
    None { all_down: bool },
}
