//! Services that choose among names as well as addresses: the answer is the CNAME that was drawn, or the addresses.
//!
//! Called by [`Engine::answer`] off the usual path, through the entries of such a service's name. What a chosen CNAME
//! leads to is left to whoever resolves, also where it is served here: its records may be chosen in turn, and a reply
//! in which one choice hangs on another could not be cached by parts.

use super::write::Reply;
use super::{Choice, Engine, Event, Located, Silent, Trace};
use crate::tables::plans::{Policy, Service, cname_of};
use crate::tables::{NONE, Snapshot};
use crate::wire::dns::rtype;

impl Engine {
    /// Appends what a service with names among its members gives to any type of question, owned by the name at the
    /// pointer `owner`. One draw among names and addresses decides for every type whether the answer is a CNAME, so that a
    /// resolver that keeps the CNAME uses it no more often than it is chosen; addresses are then drawn among themselves.
    #[cold]
    #[inline(never)]
    pub(super) fn service_with_cnames<const N: usize, T: Trace>(
        &mut self,
        snapshot: &Snapshot,
        q: &Located,
        reply: &mut Reply<'_, N>,
        service: u32,
        owner: u16,
        trace: &mut T,
    ) -> Choice {
        let mut choice = Choice {
            addresses: false,
            scope: 0,
        };
        let plans = &snapshot.plans;
        let Some(&Service {
            policy: policy_index,
            v4,
            v6,
            decides,
        }) = plans.service(service)
        else {
            return choice;
        };
        let Some(policy) = plans.policy(policy_index) else {
            return choice;
        };
        trace.event(Event::Client {
            service,
            policy: policy_index,
            class: q.class,
            subnet: q.by_subnet,
        });
        if policy.flags & Policy::BY_CLASS != 0 && q.by_subnet {
            choice.scope = q.class.depth;
        }
        trace.event(Event::Scope(choice.scope));
        let Some(cell) = plans.cell(policy, q.class.id) else {
            return choice;
        };
        trace.event(Event::Ranked(*cell));
        let any_health = policy.flags & Policy::ANY_HEALTH != 0;
        // One member is drawn, in silence, since an address drawn here is not what is given.
        let weights = &plans.weights_a;
        let decided = self
            .chooser
            .choose(plans, decides, cell, any_health, weights, &mut Silent);
        let member = decided.members.first().filter(|_| decided.count > 0).copied();
        let record = member.and_then(|m| plans.records_a.get(m as usize));
        if let (Some(member), Some(cname)) = (member, record.and_then(cname_of)) {
            trace.event(Event::DrawnName { member });
            if let Some(blob) = snapshot.answers.blob(cname) {
                reply.blob_owned(&blob, owner);
                choice.addresses = true;
            }
            return choice;
        }
        let (pool, weights) = match q.qtype {
            rtype::A => (v4, &plans.weights_a),
            rtype::AAAA => (v6, &plans.weights_aaaa),
            _ => return choice,
        };
        if pool == NONE {
            return choice;
        }
        let chosen = self.chooser.choose(plans, pool, cell, any_health, weights, trace);
        reply.all_down(chosen.all_down);
        for &member in chosen.members.iter().take(chosen.count) {
            if q.qtype == rtype::A {
                if let Some(record) = plans.records_a.get(member as usize) {
                    reply.record(record, owner);
                }
            } else if let Some(record) = plans.records_aaaa.get(member as usize) {
                reply.record(record, owner);
            }
        }
        choice.addresses = chosen.count > 0;
        if chosen.count == 0
            && let Some(fixed) = plans.pools.get(pool as usize).filter(|p| p.fixed != NONE)
            && let Some(blob) = snapshot.answers.blob(fixed.fixed)
        {
            reply.blob_owned(&blob, owner);
            choice.addresses = true;
        }
        choice
    }
}
