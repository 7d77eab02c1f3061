//! What every reply must be, whatever was asked: read here by a plain reader of RFC 1035 of its own, and by the `domain`
//! crate. Called by all targets that get replies.

use domain::base::Message;
use domain::rdata::AllRecordData;
use std::collections::{BTreeMap, BTreeSet};

const HEADER: usize = 12;
const CNAME: u16 = 5;
const OPT: u16 = 41;

/// The transport, and so the limit of a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Via {
    /// 512 bytes without EDNS, else what it allows and 1,232 at most.
    Udp,
    /// 65,535 bytes.
    Tcp,
}

/// A record as it stands in a message.
#[derive(Clone, Debug)]
pub struct Record {
    /// 1 answer, 2 authority, 3 additional.
    pub section: u8,
    /// Owner in wire form, pointers followed.
    pub owner: Vec<u8>,
    /// RR type.
    pub rtype: u16,
    /// Class.
    pub class: u16,
    /// TTL.
    pub ttl: u32,
    /// RDATA as it stands.
    pub rdata: Vec<u8>,
}

/// A message, read to its end.
#[derive(Clone, Debug)]
pub struct Read {
    /// The second word of the header.
    pub flags: u16,
    /// QDCOUNT to ARCOUNT.
    pub counts: [u16; 4],
    /// The question's bytes.
    pub question: Vec<u8>,
    /// The question's name, in wire form.
    pub qname: Vec<u8>,
    /// All records.
    pub records: Vec<Record>,
    /// Where the last record ends.
    pub end: usize,
}

impl Read {
    /// The extended RCODE.
    pub fn rcode(&self) -> u16 {
        let high = self.opt().map_or(0, |opt| opt.ttl >> 24) as u16;
        high << 4 | self.flags & 15
    }

    /// The OPT record.
    pub fn opt(&self) -> Option<&Record> {
        self.records.iter().find(|r| r.rtype == OPT && r.section == 3)
    }

    /// The options of the OPT record: code, data.
    pub fn options(&self) -> Vec<(u16, Vec<u8>)> {
        let mut rest = self.opt().map_or(&[][..], |opt| &opt.rdata);
        let mut options = Vec::new();
        while let [c0, c1, l0, l1, after @ ..] = rest {
            let len = usize::from(u16::from_be_bytes([*l0, *l1]));
            let Some(data) = after.get(..len) else { break };
            options.push((u16::from_be_bytes([*c0, *c1]), data.to_vec()));
            rest = &after[len..];
        }
        options
    }

    /// Owner, lower-cased, and type of the records of a section, in order.
    pub fn shape(&self, section: u8) -> Vec<(Vec<u8>, u16)> {
        let of = self
            .records
            .iter()
            .filter(|r| r.section == section && r.rtype != OPT);
        of.map(|r| (r.owner.to_ascii_lowercase(), r.rtype)).collect()
    }
}

fn word(message: &[u8], at: usize) -> Result<u16, String> {
    let bytes = message.get(at..at + 2).ok_or_else(|| format!("ends at {at}"))?;
    Ok(u16::from_be_bytes([bytes[0], bytes[1]]))
}

/// The name at `at`, pointers followed backwards alone (RFC 1035 section 4.1.4: "a prior occurrence"), and what is
/// behind it. With `follow` false, a pointer ends it unread.
fn name(message: &[u8], mut at: usize, follow: bool) -> Result<(Vec<u8>, usize), String> {
    let (mut name, mut behind, mut limit) = (Vec::new(), None, at);
    loop {
        let len = *message.get(at).ok_or_else(|| format!("name ends at {at}"))?;
        match len >> 6 {
            0 => {
                let label = message.get(at..at + 1 + usize::from(len));
                name.extend(label.ok_or_else(|| format!("label ends at {at}"))?);
                at += 1 + usize::from(len);
                if name.len() > 255 {
                    return Err(format!("name of {} bytes", name.len()));
                }
                if len == 0 {
                    return Ok((name, behind.unwrap_or(at)));
                }
            }
            3 => {
                let to = usize::from(word(message, at)? & 0x3fff);
                behind.get_or_insert(at + 2);
                if !follow {
                    return Ok((name, at + 2));
                }
                if to >= limit || to < HEADER {
                    return Err(format!("pointer at {at} to {to}"));
                }
                (at, limit) = (to, to);
            }
            _ => return Err(format!("label type {len:#x} at {at}")),
        }
    }
}

/// Reads a message to its end.
///
/// # Errors
/// What is wrong with it, as text.
pub fn read(message: &[u8], follow: bool) -> Result<Read, String> {
    let [flags, qd, an, ns, ar] = [2, 4, 6, 8, 10].map(|at| word(message, at));
    let counts = [qd?, an?, ns?, ar?];
    let mut read = Read {
        flags: flags?,
        counts,
        question: vec![],
        qname: vec![],
        records: vec![],
        end: HEADER,
    };
    if counts[0] > 1 {
        return Err(format!("{} questions", counts[0]));
    }
    if counts[0] == 1 {
        let (qname, behind) = name(message, HEADER, false)?;
        if qname.last() != Some(&0) {
            return Err("pointer in the question".into());
        }
        read.end = behind + 4;
        let question = message.get(HEADER..read.end).ok_or("question cut")?;
        (read.question, read.qname) = (question.to_vec(), qname);
    }
    for section in 1..=3u8 {
        for _ in 0..counts[usize::from(section)] {
            let (owner, at) = name(message, read.end, follow)?;
            let rdlen = usize::from(word(message, at + 8)?);
            let rdata = message.get(at + 10..at + 10 + rdlen).ok_or("RDATA cut")?;
            let ttl = u32::from(word(message, at + 4)?) << 16 | u32::from(word(message, at + 6)?);
            read.records.push(Record {
                section,
                owner,
                rtype: word(message, at)?,
                class: word(message, at + 2)?,
                ttl,
                rdata: rdata.to_vec(),
            });
            read.end = at + 10 + rdlen;
        }
    }
    Ok(read)
}

/// Holds every law of a reply.
///
/// # Panics
/// When one is broken; the message says which, with both messages.
pub fn check(query: &[u8], reply: &[u8], via: Via) -> Read {
    let read = match read(reply, true) {
        Ok(read) => read,
        Err(error) => panic!("unreadable reply: {error}\nquery {query:02x?}\nreply {reply:02x?}"),
    };
    if let Err(law) = laws(query, reply, &read, via) {
        panic!("{law}\nquery {query:02x?}\nreply {reply:02x?}");
    }
    read
}

macro_rules! law {
    ($holds:expr, $($text:tt)*) => {
        if !$holds {
            return Err(format!($($text)*));
        }
    };
}

fn laws(query: &[u8], reply: &[u8], read: &Read, via: Via) -> Result<(), String> {
    law!(query.len() >= HEADER, "a reply to less than a header");
    law!(query[2] & 0x80 == 0, "a reply to a response");
    law!(
        read.end == reply.len(),
        "{} bytes behind the last record",
        reply.len() - read.end
    );
    law!(reply[..2] == query[..2], "another id");
    let asked = u16::from_be_bytes([query[2], query[3]]);
    // Opcode and RD are copied (RFC 1035 section 4.1.1), CD too (RFC 4035 section 3.1.6), the latter two in queries
    // alone; RA, Z and AD are 0.
    let asked = if asked & 0x7800 == 0 {
        asked
    } else {
        asked & 0x7800
    };
    law!(
        read.flags & 0xf900 == 0x8000 | asked & 0x7900,
        "QR, opcode, RD: {:04x}",
        read.flags
    );
    law!(read.flags & 0x00e0 == 0, "RA, Z, AD: {:04x}", read.flags);
    law!(read.flags & 0x0010 & !asked == 0, "CD made up");
    let rcode = read.rcode();
    law!(matches!(rcode, 0 | 1 | 3 | 4 | 5 | 6 | 16 | 23), "rcode {rcode}");
    law!(query[HEADER..].starts_with(&read.question), "another question");
    law!(via == Via::Udp || read.flags & 0x0200 == 0, "TC over TCP");
    records(read)?;
    let domain = Message::from_octets(reply).map_err(|e| format!("domain: {e}"))?;
    let (_, answer, authority, additional) = domain.sections().map_err(|e| format!("domain: {e}"))?;
    for section in [answer, authority, additional] {
        for record in section.limit_to::<AllRecordData<_, _>>() {
            record.map_err(|e| format!("domain: {e}"))?;
        }
    }
    edns(query, reply, read, via)
}

/// Sets have one TTL (RFC 2181 section 5.2) and no record twice; the answer begins with the question's name.
fn records(read: &Read) -> Result<(), String> {
    let (mut ttls, mut seen) = (BTreeMap::new(), BTreeSet::new());
    for r in &read.records {
        law!(
            r.rtype == OPT || read.question.ends_with(&r.class.to_be_bytes()),
            "class {}",
            r.class
        );
        let owner = r.owner.to_ascii_lowercase();
        law!(
            seen.insert((owner.clone(), r.rtype, r.rdata.clone())),
            "a record twice: {r:?}"
        );
        let ttl = *ttls.entry((owner, r.rtype)).or_insert(r.ttl);
        law!(ttl == r.ttl, "TTLs {ttl} and {} in a set", r.ttl);
    }
    let Some(first) = read.records.iter().find(|r| r.section == 1) else {
        return Ok(());
    };
    // A DNAME stands before the CNAME that is made of it, at a name above the question's.
    law!(
        first.owner == read.qname || first.rtype == 39 && read.qname.len() > first.owner.len(),
        "the answer begins at another name"
    );
    let cnames = read.records.iter().filter(|r| r.section == 1 && r.rtype == CNAME);
    law!(cnames.count() <= 8, "more than eight CNAMEs");
    Ok(())
}

/// At most one OPT and none unasked, the limit, and options that mirror the query's.
fn edns(query: &[u8], reply: &[u8], read: &Read, via: Via) -> Result<(), String> {
    let opts = read.records.iter().filter(|r| r.rtype == OPT).count();
    law!(opts <= 1, "{opts} OPT records");
    let asked = self::read(query, false).ok();
    let asked_opt = asked.as_ref().and_then(Read::opt);
    let limit = match (via, read.opt(), asked_opt) {
        (Via::Tcp, ..) => 65_535,
        (_, None, _) => 512,
        (_, Some(_), Some(opt)) => usize::from(opt.class.clamp(512, 1232)),
        (_, Some(_), None) => 1232,
    };
    law!(
        reply.len() <= limit,
        "{} bytes where {limit} are allowed",
        reply.len()
    );
    let Some(opt) = read.opt() else { return Ok(()) };
    law!(opt.owner == [0] && opt.ttl & 0x00ff_7fff == 0, "OPT {opt:?}");
    let Some(asked) = asked.filter(|asked| asked.opt().is_some()) else {
        return Ok(());
    };
    let sent = asked.options();
    for (code, data) in read.options() {
        let of = sent.iter().find(|(c, _)| *c == code);
        let fine = match (code, of) {
            // Extended errors are never asked for (RFC 8914).
            (15, _) => data.len() >= 2,
            (_, None) => false,
            (3, _) => !data.is_empty(),
            // Family, source and address as sent, SCOPE anything that the family has (RFC 7871 section 7.2.1).
            (8, Some((_, sent))) => {
                let bits = if data.get(1) == Some(&1) { 32 } else { 128 };
                data.len() == sent.len()
                    && data[..3] == sent[..3]
                    && data[4..] == sent[4..]
                    && data[3] <= bits
            }
            (10, Some((_, sent))) => data.len() == 24 && data[..8] == sent[..8],
            (11, _) => via == Via::Tcp && data.len() == 2,
            _ => false,
        };
        law!(fine, "option {code} {data:02x?}");
    }
    Ok(())
}
