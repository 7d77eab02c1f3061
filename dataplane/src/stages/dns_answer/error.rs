//! Replies that no table gives: errors with what explains them (RFC 8914), texts of class CH (RFC 4892), the record for ANY
//! (RFC 8482), and the answer to a query for a cookie alone (RFC 7873 section 5.4). All on the cold path.

use super::parse::Located;
use super::write::Reply;
use super::{Outcome, Transport, fixed};
use crate::counters::Counter;
use crate::tables::names::Node;
use crate::tables::{Limits, Snapshot, Zone};
use crate::wire::cookie::CLIENT_LEN;
use crate::wire::dns::{self, HEADER_LEN, flags, rcode, rtype};
use crate::wire::edns::Edns;

/// Extended errors (RFC 8914 section 4).
pub(super) mod info {
    /// An INFO-CODE and its EXTRA-TEXT.
    #[derive(Clone, Copy, Debug)]
    pub(in super::super) struct Info {
        pub(in super::super) code: u16,
        pub(in super::super) text: &'static str,
    }

    const fn new(code: u16, text: &'static str) -> Info {
        Info { code, text }
    }

    /// Other: no member of the service is up, and the all-down rule gives what it has.
    pub(in super::super) const MAKESHIFT: Info = new(0, "no member is up");
    /// Not Authoritative: the name is in no zone that is served here.
    pub(in super::super) const NOT_AUTHORITATIVE: Info = new(20, "");
    /// Not Supported: the operation, class or type of the query.
    pub(in super::super) const NOT_SUPPORTED: Info = new(21, "");
    /// Network Error: no member of the service is up, and nothing else is to be given.
    pub(in super::super) const NONE_UP: Info = new(23, "no member is up");
}

/// Name, in wire form and lower case, of the questions that are answered in class CH.
const VERSION_BIND: &[u8] = b"\x07version\x04bind\0";
const VERSION_SERVER: &[u8] = b"\x07version\x06server\0";
const HOSTNAME_BIND: &[u8] = b"\x08hostname\x04bind\0";
const ID_SERVER: &[u8] = b"\x02id\x06server\0";

/// A reply for a query that the tables do not decide: mostly an error, with the question if it could be read, and
/// OPT if one was. `code` is the extended RCODE; NOERROR stands for a query without question that has a cookie.
#[cold]
#[inline(never)]
pub(super) fn error<const N: usize>(
    snapshot: &Snapshot,
    q: &Located,
    buffer: &mut [u8; N],
    transport: Transport,
    mut code: u16,
) -> Outcome {
    const NOERROR: u16 = rcode::NOERROR as u16;
    const FORMERR: u16 = rcode::FORMERR as u16;
    const NOTIMP: u16 = rcode::NOTIMP as u16;
    const REFUSED: u16 = rcode::REFUSED as u16;
    let class = match q.question_end as usize {
        HEADER_LEN => 0,
        end => dns::be16(buffer, end - 2),
    };
    if code == REFUSED && class == dns::CLASS_CH && q.qtype == rtype::TXT {
        let text = identity(&snapshot.limits, q.name());
        if !text.is_empty() {
            let mut reply = Reply::start(snapshot, q, buffer, transport);
            reply.text(dns::CLASS_CH, text);
            return reply.finish(NOERROR, 0, None, Counter::DnsIdentity);
        }
    }
    if code == NOERROR {
        code = match q.edns.has(Edns::SETTLED) {
            false => FORMERR,
            // A client without server cookie asks for one; a bad one is told to be bad.
            true if q.edns.cookie_len as usize == CLIENT_LEN => NOERROR,
            true if q.edns.has(Edns::GOOD_COOKIE) => NOERROR,
            true => dns::rcode::BADCOOKIE,
        };
    }
    if code == NOTIMP
        && let Some([_, _, f0, f1, ..]) = buffer.first_chunk_mut::<HEADER_LEN>()
    {
        // RD and CD mean something in queries alone; ISC's compliance tester marks who copies them elsewhere.
        *f0 &= !(flags::RD >> 8) as u8;
        *f1 &= !flags::CD as u8;
    }
    let (counter, info) = match code {
        NOERROR => (Counter::DnsCookie, None),
        FORMERR => (Counter::DnsFormerr, None),
        NOTIMP => (Counter::DnsNotimp, Some(info::NOT_SUPPORTED)),
        REFUSED if class != dns::CLASS_IN || matches!(q.qtype, rtype::AXFR | rtype::IXFR) => {
            (Counter::DnsRefused, Some(info::NOT_SUPPORTED))
        }
        REFUSED => (Counter::DnsRefused, Some(info::NOT_AUTHORITATIVE)),
        dns::rcode::BADVERS => (Counter::DnsBadvers, None),
        dns::rcode::BADCOOKIE => (Counter::DnsBadcookie, None),
        _ => (Counter::DnsServfail, None),
    };
    let mut reply = Reply::start(snapshot, q, buffer, transport);
    if let Some(info) = info {
        reply.explain(info);
    }
    let scope = (code != FORMERR && code != dns::rcode::BADVERS).then_some(0);
    reply.finish(code, 0, scope, counter)
}

/// The text for a question of class CH; empty if there is none.
fn identity<'a>(limits: &'a Limits, name: &[u8]) -> &'a [u8] {
    match name {
        VERSION_BIND | VERSION_SERVER => &limits.version,
        HOSTNAME_BIND => &limits.hostname,
        // The same that NSID says (RFC 5001), so that both tell one server from another alike.
        ID_SERVER => &limits.nsid,
        _ => &[],
    }
}

/// NODATA of a service without a member that is up, where the all-down rule has nothing to give.
#[cold]
#[inline(never)]
pub(super) fn none_up<const N: usize>(
    snapshot: &Snapshot,
    q: &Located,
    buffer: &mut [u8; N],
    transport: Transport,
    zone: Option<Zone>,
    scope: u8,
) -> Outcome {
    let mut reply = Reply::start(snapshot, q, buffer, transport);
    reply.all_down();
    reply.explain(info::NONE_UP);
    if let Some(blob) = zone.and_then(|zone| snapshot.answers.blob(zone.negative)) {
        reply.blob(&blob);
    }
    reply.finish(rcode::NOERROR as u16, flags::AA, Some(scope), Counter::DnsNodata)
}

/// ANY gets one synthesised HINFO (RFC 8482 section 4.2); a CNAME answers for itself.
#[cold]
pub(super) fn any<const N: usize>(
    snapshot: &Snapshot,
    q: &Located,
    buffer: &mut [u8; N],
    transport: Transport,
    node: &Node,
) -> Outcome {
    if let Some(entry) = snapshot
        .names
        .entry(node, rtype::CNAME)
        .filter(|e| e.rtype() == rtype::CNAME)
    {
        return fixed(snapshot, q, buffer, transport, entry);
    }
    let mut reply = Reply::start(snapshot, q, buffer, transport);
    // Owner pointer, HINFO, IN, TTL 3600, RDLENGTH 9: "RFC8482" and "".
    const RECORD: [u8; 21] = *b"\xc0\x0c\x00\x0d\x00\x01\x00\x00\x0e\x10\x00\x09\x07RFC8482\x00";
    if reply.has_room(1, RECORD.len()) {
        reply.record(&RECORD, 0xc00c);
    }
    reply.finish(rcode::NOERROR as u16, flags::AA, Some(0), Counter::DnsAnswer)
}

/// An empty reply in place of one over the rate limit: with TC set, so that a real client comes back over TCP.
#[cold]
pub(super) fn slipped<const N: usize>(snapshot: &Snapshot, q: &Located, buffer: &mut [u8; N]) -> Outcome {
    let mut reply = Reply::start(snapshot, q, buffer, Transport::Udp);
    reply.truncate();
    reply.finish(rcode::NOERROR as u16, 0, Some(0), Counter::DnsSlipped)
}

/// BADCOOKIE with a good cookie (RFC 7873 section 5.2.3), in place of an answer or of one over the rate limit.
#[cold]
pub(super) fn bad_cookie<const N: usize>(snapshot: &Snapshot, q: &Located, buffer: &mut [u8; N]) -> Outcome {
    let mut reply = Reply::start(snapshot, q, buffer, Transport::Udp);
    reply.finish(dns::rcode::BADCOOKIE, 0, Some(0), Counter::DnsBadcookie)
}
