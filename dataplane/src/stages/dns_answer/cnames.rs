//! Services that choose among names as well as addresses: the answer is the CNAME that was drawn, or the addresses.
//!
//! Called by [`Engine::answer`] off the usual path, through the entries of such a service's name. What a chosen CNAME
//! leads to is left to whoever resolves, also where it is served here: its records may be chosen in turn, and a reply
//! in which one choice hangs on another could not be cached by parts.

use super::service::{Choice, rank};
use super::write::Reply;
use super::{Engine, Event, Located, Silent, Trace};
use crate::tables::Snapshot;
use crate::tables::plans::cname_of;

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
    ) -> (Choice, u8) {
        let nothing = Choice::None { all_down: false };
        let plans = &snapshot.plans;
        let Some(service_of) = plans.service(service) else {
            return (nothing, 0);
        };
        let Some(ranked) = rank(snapshot, q, service_of.policy) else {
            return (nothing, 0);
        };
        ranked.tell(service, trace);
        let decides = plans.pools.get(service_of.decides as usize);
        let (Some(cell), Some(decides)) = (snapshot.cells.get(ranked.cell as usize), decides) else {
            return (nothing, ranked.scope);
        };
        trace.event(Event::Ranked(*cell));
        // One member is drawn, in silence, since an address drawn here is not what is given.
        let asker = self.asker(snapshot, &ranked);
        let family = plans.family(false);
        let decided = self
            .chooser
            .choose(plans, decides, cell, family, &asker, &mut Silent);
        let member = decided.members.first().filter(|_| decided.count > 0).copied();
        let record = member.and_then(|m| plans.records_a.get(m as usize));
        if let (Some(member), Some(cname)) = (member, record.and_then(cname_of)) {
            trace.event(Event::DrawnName { member });
            let Some(blob) = snapshot.answers.blob(cname) else {
                return (nothing, ranked.scope);
            };
            reply.blob_owned(&blob, owner);
            return (Choice::Given, ranked.scope);
        }
        let choice = self.addresses_of(snapshot, q, reply, service_of, cell, &asker, owner, trace);
        (choice, ranked.scope)
    }
}
