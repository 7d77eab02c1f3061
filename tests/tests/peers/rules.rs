//! Where the other servers may differ from Windrose, and why. Each rule must be needed: one that explains no difference fails the test.
//! Called by the comparison.

use super::queries::{Asked, Twist};
use Kind::{Gdnsd, Knot, Nsd};
use windrose_tests::message::{Record, Reply, flag, rtype};
use windrose_tests::peer::Kind;

/// RCODEs (IANA).
const FORMERR: Option<u16> = Some(1);
const NXDOMAIN: Option<u16> = Some(3);
const NOTIMP: Option<u16> = Some(4);
const REFUSED: Option<u16> = Some(5);
const NOTAUTH: Option<u16> = Some(9);

/// edns-tcp-keepalive (RFC 7828).
const KEEPALIVE: u16 = 11;
/// Types of DNSSEC (IANA).
const RRSIG: u16 = 46;
const NSEC: u16 = 47;
const NSEC3: u16 = 50;

/// Two replies to one question that are not the same.
pub(crate) struct Difference<'a> {
    pub(crate) peer: Kind,
    pub(crate) tcp: bool,
    pub(crate) asked: &'a Asked,
    pub(crate) ours: Option<&'a Reply>,
    pub(crate) theirs: Option<&'a Reply>,
}

/// A kind of difference that is as it should be.
pub(crate) struct Rule {
    pub(crate) because: &'static str,
    /// Hangs on how fast the machine is.
    pub(crate) sometimes: bool,
    peers: &'static [Kind],
    holds: fn(&Difference<'_>) -> bool,
}

impl Rule {
    pub(crate) fn explains(&self, difference: &Difference<'_>) -> bool {
        self.peers.contains(&difference.peer) && (self.holds)(difference)
    }
}

const fn rule(because: &'static str, peers: &'static [Kind], holds: fn(&Difference<'_>) -> bool) -> Rule {
    Rule {
        because,
        sometimes: false,
        peers,
        holds,
    }
}

impl Difference<'_> {
    fn ours(&self) -> Option<u16> {
        self.ours.map(Reply::rcode)
    }

    fn theirs(&self) -> Option<u16> {
        self.theirs.map(Reply::rcode)
    }

    /// The question is unusual in this way, and we reply with this RCODE.
    fn is(&self, twist: Twist, ours: Option<u16>) -> bool {
        self.asked.twist == twist && self.ours() == ours
    }

    /// Same RCODE and flags; `theirs` has the sections that hold.
    fn like(&self, holds: impl Fn(&Reply, &Reply) -> bool) -> bool {
        match (self.ours, self.theirs) {
            (Some(ours), Some(theirs)) => {
                ours.flags == theirs.flags && ours.rcode() == theirs.rcode() && holds(ours, theirs)
            }
            _ => false,
        }
    }
}

fn lines(records: &[Record]) -> Vec<String> {
    let mut lines: Vec<String> = records
        .iter()
        .filter(|r| r.rtype != rtype::OPT)
        .map(|r| r.line().to_lowercase())
        .collect();
    lines.sort();
    lines
}

/// All of `part` is in `whole`.
fn within(part: &[Record], whole: &[Record]) -> bool {
    let whole = lines(whole);
    lines(part).iter().all(|line| whole.contains(line))
}

/// The first one that holds counts.
pub(crate) const RULES: &[Rule] = &[
    rule("Knot drops what has several questions", &[Knot], |d| {
        d.is(Twist::TwoQuestions, FORMERR) && d.theirs.is_none()
    }),
    rule("gdnsd echoes the first of several questions", &[Gdnsd], |d| {
        d.is(Twist::TwoQuestions, FORMERR)
            && d.theirs() == FORMERR
            && d.theirs.is_some_and(|r| r.counts[0] == 1)
    }),
    rule(
        "no OPT in FORMERR, though the query's could be read (RFC 6891 section 6.1.1)",
        &[Nsd, Knot],
        |d| d.ours() == FORMERR && d.theirs() == FORMERR && d.theirs.is_some_and(|r| r.opt().is_none()),
    ),
    rule(
        "NSD takes records in answer and authority of a query for an error",
        &[Nsd],
        |d| d.asked.twist == Twist::Records && d.theirs() == FORMERR,
    ),
    rule("NSD takes an RCODE in a query for an error", &[Nsd], |d| {
        d.asked.twist == Twist::Rcode && d.theirs() == FORMERR
    }),
    rule(
        "Knot takes bytes behind the last record for an error",
        &[Knot],
        |d| d.asked.twist == Twist::Tail && d.theirs() == FORMERR,
    ),
    rule("NSD leaves the question out of NOTIMP and REFUSED", &[Nsd], |d| {
        matches!(d.asked.twist, Twist::Opcode | Twist::Class)
            && d.ours() == d.theirs()
            && d.theirs.is_some_and(|r| r.counts[0] == 0)
    }),
    rule(
        "NSD knows NOTIFY, and not from this client or for this name",
        &[Nsd],
        |d| {
            d.is(Twist::Opcode, NOTIMP)
                && d.asked.query.flags >> 11 == 4
                && matches!(d.theirs(), REFUSED | NXDOMAIN)
        },
    ),
    rule(
        "Knot knows NOTIFY and UPDATE, and not for this zone or client",
        &[Knot],
        |d| d.is(Twist::Opcode, NOTIMP) && matches!(d.theirs(), NOTAUTH | REFUSED | FORMERR),
    ),
    rule("class ANY is answered as IN", &[Nsd, Knot, Gdnsd], |d| {
        d.is(Twist::Class, REFUSED)
            && d.theirs() != REFUSED
            && d.asked.query.sections[0][0].ends_with(&[0, 255])
    }),
    rule(
        "gdnsd answers every question of class CH with its version",
        &[Gdnsd],
        |d| {
            d.is(Twist::Class, REFUSED)
                && d.theirs
                    .is_some_and(|r| r.sections[0].iter().all(|a| a.class == 3))
        },
    ),
    rule(
        "gdnsd and Knot do not take some types that no record has",
        &[Gdnsd, Knot],
        |d| {
            let odd = match d.peer {
                // QTYPEs and meta-TYPEs (RFC 6895 section 3.1).
                Gdnsd => (128..=254).contains(&d.asked.rtype),
                _ => d.asked.rtype == 0,
            };
            odd && d.theirs() == NOTIMP
        },
    ),
    rule(
        "ANY gets HINFO here (RFC 8482 section 4.2)",
        &[Nsd, Knot, Gdnsd],
        |d| {
            d.asked.rtype == rtype::ANY
                && d.ours
                    .is_some_and(|r| r.sections[0].iter().any(|a| a.rtype == rtype::HINFO))
        },
    ),
    rule("gdnsd tells its idle timeout unasked", &[Gdnsd], |d| {
        d.tcp
            && d.theirs
                .is_some_and(|r| r.option(KEEPALIVE).is_ok_and(|o| o.is_some()))
            && d.like(|ours, theirs| (0..3).all(|n| lines(&ours.sections[n]) == lines(&theirs.sections[n])))
    }),
    rule("gdnsd has MINIMUM as TTL of SOA in answers too", &[Gdnsd], |d| {
        d.asked.rtype == rtype::SOA
            && d.like(|ours, theirs| {
                ours.sections[0].len() == 1 && theirs.sections[0].iter().all(|r| r.ttl <= 60)
            })
    }),
    rule(
        "more in the additional section than must be",
        &[Nsd, Knot, Gdnsd],
        |d| {
            d.like(|ours, theirs| {
                lines(&ours.sections[0]) == lines(&theirs.sections[0])
                    && lines(&ours.sections[1]) == lines(&theirs.sections[1])
                    && within(&ours.sections[2], &theirs.sections[2])
            })
        },
    ),
    rule(
        "gdnsd does not know DS: it refers at the cut (RFC 4035 section 3.1.4.1)",
        &[Gdnsd],
        |d| {
            d.asked.rtype == rtype::DS
                && d.theirs
                    .is_some_and(|r| r.flags & flag::AA == 0 && r.counts[2] > 0)
        },
    ),
    rule("gdnsd follows no CNAME", &[Gdnsd], |d| {
        matches!((d.ours, d.theirs), (Some(ours), Some(theirs))
            if theirs.rcode() == 0
                && theirs.counts[1..3] == [1, 0]
                && theirs.sections[0][0].rtype == rtype::CNAME
                && within(&theirs.sections[0], &ours.sections[0]))
    }),
    rule(
        "gdnsd has HINFO for ANY at an empty non-terminal",
        &[Gdnsd],
        |d| {
            d.asked.rtype == rtype::ANY
                && d.ours().is_some_and(|rcode| rcode == 0)
                && d.theirs
                    .is_some_and(|r| r.sections[0].first().is_some_and(|a| a.rtype == rtype::HINFO))
        },
    ),
    rule(
        "gdnsd reads DNS stateful operations as if they were queries",
        &[Gdnsd],
        |d| d.is(Twist::Opcode, NOTIMP) && d.asked.query.flags >> 11 == 6 && d.theirs() == FORMERR,
    ),
    rule(
        "NSD takes a query without question for one that asks for a cookie",
        &[Nsd],
        |d| d.is(Twist::NoQuestion, FORMERR) && d.theirs() == Some(0),
    ),
    rule("Knot has no SOA behind a CNAME into another zone", &[Knot], |d| {
        d.like(|ours, theirs| {
            lines(&ours.sections[0]) == lines(&theirs.sections[0])
                && ours.sections[0].iter().any(|r| r.rtype == rtype::CNAME)
                && theirs.sections[1].is_empty()
        })
    }),
    rule(
        "RRSIG and NSEC at a CNAME are its own: Knot does not follow (RFC 4034 section 3)",
        &[Knot],
        |d| {
            matches!(d.asked.rtype, RRSIG | NSEC)
                && d.theirs.is_some_and(|r| r.rcode() == 0 && r.counts[1] == 0)
        },
    ),
    rule(
        "NSD finds no NSEC3 at a wildcard's CNAME, and does not follow it",
        &[Nsd],
        |d| d.asked.rtype == NSEC3 && d.theirs.is_some_and(|r| r.rcode() == 0 && r.counts[1] == 0),
    ),
    rule("Knot follows no CNAME into another zone", &[Knot], |d| {
        matches!((d.ours, d.theirs), (Some(ours), Some(theirs))
            if theirs.counts[1..3] == [1, 0]
                && theirs.sections[0][0].text == "www.example.net"
                && within(&theirs.sections[0], &ours.sections[0]))
    }),
    Rule {
        sometimes: true,
        ..rule("NSD sends so many errors a second and no more", &[Nsd], |d| {
            d.asked.twist != Twist::None && d.theirs.is_none()
        })
    },
];
