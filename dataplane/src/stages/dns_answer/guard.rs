//! What stands between an answer and its client where the configuration asks for it: cookies that are required, and
//! response rate limits. Called by the stage instead of the engine when the snapshot has either; TCP has none of it, since its
//! clients have shown that they are where they say.

use super::error::{bad_cookie, slipped};
use super::parse::{Located, Status};
use super::{Engine, Outcome, Silent, Transport};
use crate::arch::Ticks;
use crate::counters::{Counter, Counters};
use crate::stages::rate_limit::{Account, Pass, RateLimit, Rules};
use crate::tables::{NONE, Snapshot};
use crate::wire::dns::HEADER_LEN;
use crate::wire::edns::Edns;

/// Whether queries of this snapshot need a guard.
#[inline(always)]
pub(super) fn wanted(snapshot: &Snapshot) -> bool {
    let limits = &snapshot.limits;
    limits.rate_limit.is_some() || limits.cookies.is_some_and(|cookies| cookies.require)
}

/// Answers a query over UDP under guard.
#[inline(never)]
pub(super) fn answer<const N: usize>(
    engine: &mut Engine,
    limit: &mut RateLimit,
    snapshot: &Snapshot,
    q: &mut Located,
    buffer: &mut [u8; N],
    now: Ticks,
    counters: &mut Counters,
) -> Outcome {
    q.settle_cookie(snapshot, engine.seconds);
    q.account = NONE;
    if !q.edns.has(Edns::GOOD_COOKIE) && required(snapshot, q) && engine.reread(snapshot, q, buffer) {
        q.settle_cookie(snapshot, engine.seconds);
    }
    let known = q.edns.has(Edns::GOOD_COOKIE);
    let outcome = if !known && required(snapshot, q) {
        bad_cookie(snapshot, q, buffer)
    } else {
        engine.answer_chosen(snapshot, q, buffer, Transport::Udp, &mut Silent)
    };
    let (Some(rules), Outcome::Reply { counter, .. }) = (&snapshot.limits.rate_limit, outcome) else {
        return outcome;
    };
    if known || rules.allows(q.source().address()) {
        counters.bump(Counter::RateLimitExempt);
        return outcome;
    }
    match pass(limit, rules, snapshot, q, counter, now) {
        Pass::Send => outcome,
        // Without a question there is nothing to ask again over TCP.
        Pass::Slip if q.question_end as usize > HEADER_LEN => match q.edns.has(Edns::SETTLED) {
            true => bad_cookie(snapshot, q, buffer),
            false => slipped(snapshot, q, buffer),
        },
        Pass::Slip | Pass::Drop => Outcome::Drop(Counter::DropRateLimit),
    }
}

/// Whether the query gets no answer without a good cookie: it has some cookie, so its client can do better.
fn required(snapshot: &Snapshot, q: &Located) -> bool {
    let require = snapshot.limits.cookies.is_some_and(|cookies| cookies.require);
    require && q.edns.has(Edns::SETTLED) && matches!(q.status, Status::Short | Status::Answer)
}

/// Takes a reply from its account.
fn pass(
    limit: &mut RateLimit,
    rules: &Rules,
    snapshot: &Snapshot,
    q: &Located,
    counter: Counter,
    now: Ticks,
) -> Pass {
    let account = match counter {
        Counter::DnsAnswer | Counter::DnsIdentity => Account::Answer,
        Counter::DnsNodata => Account::Nodata,
        Counter::DnsNxdomain => Account::Nxdomain,
        Counter::DnsReferral => Account::Referral,
        _ => Account::Error,
    };
    let name = match (account, q.account) {
        (Account::Error, _) => 0,
        // The name asked for is a name of the zone.
        (_, NONE) => snapshot.names.hash(&q.key),
        (_, shared) => u64::from(shared),
    };
    limit.pass(rules, q.source().address(), account, name, now)
}
