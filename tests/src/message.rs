//! DNS messages as the tests write and read them: a query with whatever wrong that a test wants, and a reply as one
//! line of text. Own codec, on purpose: it judges what the data plane's made.
//!
//! Called by the matrix and the comparison with other servers; owns nothing.

use anyhow::{Context, Result, bail, ensure};
use std::fmt::Write as _;

mod text;

use text::option_text;
pub use text::{hex, name_text, rcode_name, type_name};

/// RR types (IANA).
pub mod rtype {
    #![allow(missing_docs, reason = "the names are IANA's")]
    pub const A: u16 = 1;
    pub const NS: u16 = 2;
    pub const CNAME: u16 = 5;
    pub const SOA: u16 = 6;
    pub const PTR: u16 = 12;
    pub const HINFO: u16 = 13;
    pub const MX: u16 = 15;
    pub const TXT: u16 = 16;
    pub const AAAA: u16 = 28;
    pub const SRV: u16 = 33;
    pub const DNAME: u16 = 39;
    pub const OPT: u16 = 41;
    pub const DS: u16 = 43;
    pub const HTTPS: u16 = 65;
    pub const ANY: u16 = 255;
    pub const CAA: u16 = 257;
}

/// Header flags (RFC 1035 section 4.1.1, RFC 4035 section 3).
pub mod flag {
    #![allow(missing_docs, reason = "the names are the RFCs'")]
    pub const QR: u16 = 0x8000;
    pub const AA: u16 = 0x0400;
    pub const TC: u16 = 0x0200;
    pub const RD: u16 = 0x0100;
    pub const RA: u16 = 0x0080;
    pub const Z: u16 = 0x0040;
    pub const AD: u16 = 0x0020;
    pub const CD: u16 = 0x0010;
}

/// A name in wire form; `\.` and `\DDD` as in zone files (RFC 1035 section 5.1). "." is the root.
pub fn name(text: &str) -> Vec<u8> {
    let (mut wire, mut label, mut bytes) = (Vec::new(), Vec::new(), text.bytes());
    let mut end = |label: &mut Vec<u8>| {
        if !label.is_empty() {
            wire.push(u8::try_from(label.len()).unwrap_or(u8::MAX));
            wire.append(label);
        }
    };
    while let Some(byte) = bytes.next() {
        match byte {
            b'.' => end(&mut label),
            b'\\' => match bytes.next() {
                Some(digit @ b'0'..=b'9') => {
                    let more = [bytes.next(), bytes.next()].map(|d| u32::from(d.unwrap_or(b'0') - b'0'));
                    let value = u32::from(digit - b'0') * 100 + more[0] * 10 + more[1];
                    label.push(u8::try_from(value).unwrap_or(u8::MAX));
                }
                Some(other) => label.push(other),
                None => label.push(b'\\'),
            },
            other => label.push(other),
        }
    }
    end(&mut label);
    wire.push(0);
    wire
}

/// A resource record without compression.
pub fn record(owner: &str, rtype: u16, class: u16, ttl: u32, rdata: &[u8]) -> Vec<u8> {
    let length = u16::try_from(rdata.len()).unwrap_or(u16::MAX);
    let mut bytes = name(owner);
    bytes.extend([rtype, class].map(u16::to_be_bytes).concat());
    bytes.extend(ttl.to_be_bytes());
    bytes.extend(length.to_be_bytes());
    bytes.extend(rdata);
    bytes
}

/// An EDNS option.
pub fn option(code: u16, data: &[u8]) -> Vec<u8> {
    let length = u16::try_from(data.len()).unwrap_or(u16::MAX);
    [&code.to_be_bytes()[..], &length.to_be_bytes(), data].concat()
}

/// A client subnet option (RFC 7871 section 6): "192.0.2.0/24" and SCOPE 0.
///
/// # Panics
/// When `prefix` is none.
pub fn subnet(prefix: &str) -> Vec<u8> {
    let (address, source) = prefix.split_once('/').expect("ADDRESS/LENGTH");
    let source: u8 = source.parse().expect("a prefix length");
    let (family, octets) = match address.parse().expect("an address") {
        std::net::IpAddr::V4(a) => (1, a.octets().to_vec()),
        std::net::IpAddr::V6(a) => (2, a.octets().to_vec()),
    };
    let used = usize::from(source).div_ceil(8);
    option(8, &[&[0, family, source, 0], &octets[..used]].concat())
}

/// A query, right but for what a test changes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Query {
    /// Flags, opcode and RCODE.
    pub flags: u16,
    /// Questions, answers, authority and additional records, in wire form.
    pub sections: [Vec<Vec<u8>>; 4],
    /// The counts in the header, where they differ from what there is.
    pub counts: [Option<u16>; 4],
    /// Bytes behind the last record.
    pub tail: Vec<u8>,
    /// Length that the message is cut to, bytes.
    pub cut: Option<usize>,
    opt: Option<usize>,
}

impl Query {
    /// A question of class IN.
    pub fn new(text: &str, rtype: u16) -> Self {
        Self::of(&name(text), rtype)
    }

    /// A question of class IN about a name as it stands.
    pub fn of(wire: &[u8], rtype: u16) -> Self {
        Self::empty().question(wire, rtype, 1)
    }

    /// A header alone.
    pub fn empty() -> Self {
        Self::default()
    }

    /// One more question.
    #[must_use]
    pub fn question(mut self, wire: &[u8], rtype: u16, class: u16) -> Self {
        let question = [wire, &rtype.to_be_bytes(), &class.to_be_bytes()].concat();
        self.sections[0].push(question);
        self
    }

    /// The question's class.
    #[must_use]
    pub fn class(mut self, class: u16) -> Self {
        if let Some(question) = self.sections[0].first_mut() {
            let at = question.len() - 2;
            question[at..].copy_from_slice(&class.to_be_bytes());
        }
        self
    }

    /// Further flags.
    #[must_use]
    pub fn flags(mut self, flags: u16) -> Self {
        self.flags |= flags;
        self
    }

    /// The opcode.
    #[must_use]
    pub fn opcode(self, opcode: u16) -> Self {
        self.flags(opcode << 11)
    }

    /// A record in section 1 (answer), 2 (authority) or 3 (additional).
    #[must_use]
    pub fn record(mut self, section: usize, record: Vec<u8>) -> Self {
        self.sections[section].push(record);
        self
    }

    /// An OPT record of version 0, size 1232, without options.
    #[must_use]
    pub fn edns(self) -> Self {
        self.opt(1232, 0, &[])
    }

    /// An OPT record: size, the 32 bits of its TTL, options.
    #[must_use]
    pub fn opt(mut self, size: u16, ttl: u32, options: &[u8]) -> Self {
        self.opt = Some(self.sections[3].len());
        self.record(3, record(".", rtype::OPT, size, ttl, options))
    }

    /// One more option in the OPT record, which is added if there is none.
    #[must_use]
    pub fn option(self, option: &[u8]) -> Self {
        let mut query = match self.opt {
            Some(_) => self,
            None => self.edns(),
        };
        let record = &mut query.sections[3][query.opt.unwrap_or(0)];
        record.extend(option);
        let length = u16::try_from(record.len() - 11).unwrap_or(u16::MAX);
        record[9..11].copy_from_slice(&length.to_be_bytes());
        query
    }

    /// What the header counts in section 0 to 3.
    #[must_use]
    pub fn count(mut self, section: usize, count: u16) -> Self {
        self.counts[section] = Some(count);
        self
    }

    /// Bytes behind the last record.
    #[must_use]
    pub fn tail(mut self, bytes: &[u8]) -> Self {
        self.tail.extend(bytes);
        self
    }

    /// Cuts the message to `len` bytes.
    #[must_use]
    pub fn cut(mut self, len: usize) -> Self {
        self.cut = Some(len);
        self
    }

    /// How long a reply may be over UDP that goes up to 1,232 bytes with EDNS (RFC 6891 section 6.2.5): for a query whose OPT can be read.
    pub fn udp_limit(&self) -> usize {
        let opt = self.opt.and_then(|at| self.sections[3].get(at));
        let size = opt.map_or(512, |opt| u16::from_be_bytes([opt[3], opt[4]]));
        usize::from(size.clamp(512, 1232))
    }

    /// The message.
    pub fn message(&self, id: u16) -> Vec<u8> {
        let mut bytes = [id, self.flags].map(u16::to_be_bytes).concat();
        for (section, count) in self.sections.iter().zip(self.counts) {
            let count = count.unwrap_or(u16::try_from(section.len()).unwrap_or(u16::MAX));
            bytes.extend(count.to_be_bytes());
        }
        bytes.extend(self.sections.concat().concat());
        bytes.extend(&self.tail);
        bytes.truncate(self.cut.unwrap_or(usize::MAX));
        bytes
    }
}

/// A record of a reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Owner, uncompressed, in the case that was received.
    pub owner: Vec<u8>,
    /// Type.
    pub rtype: u16,
    /// Class.
    pub class: u16,
    /// TTL, seconds.
    pub ttl: u32,
    /// RDATA as text, names in it uncompressed.
    pub text: String,
    /// RDATA as it stands in the message.
    pub rdata: Vec<u8>,
}

/// A reply, read whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    /// Id.
    pub id: u16,
    /// Flags, opcode and RCODE.
    pub flags: u16,
    /// The four counts of the header.
    pub counts: [u16; 4],
    /// The question section as it stands.
    pub question: Vec<u8>,
    /// Answer, authority and additional records, OPT among them.
    pub sections: [Vec<Record>; 3],
}

impl Reply {
    /// Reads a message to its last byte.
    ///
    /// # Errors
    /// When it is cut, has bytes behind the last record, or a compression pointer that does not point back.
    pub fn read(message: &[u8]) -> Result<Self> {
        let word = |at| be16(message, at);
        let counts = [word(4)?, word(6)?, word(8)?, word(10)?];
        let mut at = 12;
        for _ in 0..counts[0] {
            at = read_name(message, at)?.1 + 4;
        }
        let question = message.get(12..at).context("the question is cut")?.to_vec();
        let mut sections: [Vec<Record>; 3] = Default::default();
        for (section, count) in sections.iter_mut().zip(&counts[1..]) {
            for _ in 0..*count {
                let (record, end) = read_record(message, at)?;
                section.push(record);
                at = end;
            }
        }
        ensure!(
            at == message.len(),
            "{} bytes behind the last record",
            message.len() - at
        );
        Ok(Self {
            id: word(0)?,
            flags: word(2)?,
            counts,
            question,
            sections,
        })
    }

    /// The OPT record.
    pub fn opt(&self) -> Option<&Record> {
        self.sections[2].iter().find(|record| record.rtype == rtype::OPT)
    }

    /// The RCODE with its upper bits from OPT.
    pub fn rcode(&self) -> u16 {
        let high = self.opt().map_or(0, |opt| opt.ttl >> 24);
        u16::try_from(high << 4).unwrap_or(0) | self.flags & 15
    }

    /// EDNS options: code and data.
    ///
    /// # Errors
    /// When one overruns OPT.
    pub fn options(&self) -> Result<Vec<(u16, Vec<u8>)>> {
        let rdata = self.opt().map_or(&[][..], |opt| &opt.rdata);
        let (mut options, mut at) = (Vec::new(), 0);
        while at < rdata.len() {
            let (code, length) = (be16(rdata, at)?, usize::from(be16(rdata, at + 2)?));
            let data = rdata
                .get(at + 4..at + 4 + length)
                .context("an option overruns OPT")?;
            options.push((code, data.to_vec()));
            at += 4 + length;
        }
        Ok(options)
    }

    /// The data of an option.
    ///
    /// # Errors
    /// As [`Reply::options`].
    pub fn option(&self, code: u16) -> Result<Option<Vec<u8>>> {
        Ok(self
            .options()?
            .into_iter()
            .find(|(c, _)| *c == code)
            .map(|(_, data)| data))
    }

    /// RCODE, flags (a AA, t TC, r RD, R RA, z Z, d AD, c CD), counts; the records of each section, sorted; OPT:
    /// `NOERROR ar 1/1/0/1; www.example.com 3600 A 192.0.2.80; opt 1232 nsid=demo`.
    ///
    /// # Errors
    /// When OPT cannot be read.
    pub fn line(&self) -> Result<String> {
        let mut line = rcode_name(self.rcode());
        let flags: String = [
            ('a', flag::AA),
            ('t', flag::TC),
            ('r', flag::RD),
            ('R', flag::RA),
            ('z', flag::Z),
            ('d', flag::AD),
            ('c', flag::CD),
        ]
        .iter()
        .filter(|(_, bit)| self.flags & bit != 0)
        .map(|(letter, _)| *letter)
        .collect();
        let [q, a, n, r] = self.counts;
        let _ = write!(
            line,
            " {} {q}/{a}/{n}/{r}",
            if flags.is_empty() { "-" } else { &flags }
        );
        for section in &self.sections {
            let mut lines: Vec<String> = section
                .iter()
                .filter(|record| record.rtype != rtype::OPT)
                .map(Record::line)
                .collect();
            lines.sort();
            for record in lines {
                let _ = write!(line, "; {record}");
            }
        }
        if let Some(opt) = self.opt() {
            let _ = write!(line, "; opt {}", opt.class);
            if opt.ttl & 0x8000 != 0 {
                line += " do";
            }
            if opt.ttl & 0x00ff_7fff != 0 {
                let _ = write!(line, " ttl={:08x}", opt.ttl);
            }
            for (code, data) in self.options()? {
                let _ = write!(line, " {}", option_text(code, &data));
            }
        }
        Ok(line)
    }
}

impl Record {
    /// `owner ttl type rdata`; with its class between owner and TTL where that is not IN.
    pub fn line(&self) -> String {
        let class = match self.class {
            1 => String::new(),
            3 => "CH ".into(),
            other => format!("CLASS{other} "),
        };
        let line = format!(
            "{} {class}{} {} {}",
            name_text(&self.owner),
            self.ttl,
            type_name(self.rtype),
            self.text
        );
        line.trim_end().to_owned()
    }
}

fn be16(bytes: &[u8], at: usize) -> Result<u16> {
    let pair = bytes.get(at..at + 2).context("the message is cut")?;
    Ok(u16::from_be_bytes([pair[0], pair[1]]))
}

/// The name at `at`, uncompressed, and the offset behind it.
fn read_name(message: &[u8], mut at: usize) -> Result<(Vec<u8>, usize)> {
    let (mut name, mut end) = (Vec::new(), None);
    loop {
        let length = usize::from(*message.get(at).context("a name is cut")?);
        match length {
            0 => {
                name.push(0);
                ensure!(name.len() <= 255, "a name of {} bytes", name.len());
                return Ok((name, end.unwrap_or(at + 1)));
            }
            1..=63 => {
                name.extend(message.get(at..=at + length).context("a label is cut")?);
                at += 1 + length;
            }
            0xc0.. => {
                let target = usize::from(be16(message, at)? & 0x3fff);
                ensure!(target < at, "a pointer at {at} to {target} does not point back");
                ensure!(target >= 12, "a pointer into the header");
                end = end.or(Some(at + 2));
                at = target;
            }
            other => bail!("a label of type {other:#x}"),
        }
    }
}

fn read_record(message: &[u8], at: usize) -> Result<(Record, usize)> {
    let (owner, at) = read_name(message, at)?;
    let (rtype, class) = (be16(message, at)?, be16(message, at + 2)?);
    let ttl = u32::from(be16(message, at + 4)?) << 16 | u32::from(be16(message, at + 6)?);
    let start = at + 10;
    let end = start + usize::from(be16(message, at + 8)?);
    let rdata = message.get(start..end).context("RDATA is cut")?.to_vec();
    let text = rdata_text(&message[..end], rtype, start, &rdata)?;
    let record = Record {
        owner,
        rtype,
        class,
        ttl,
        text,
        rdata,
    };
    Ok((record, end))
}

fn rdata_text(message: &[u8], rtype: u16, at: usize, rdata: &[u8]) -> Result<String> {
    let named = |at: usize| -> Result<String> {
        let (name, end) = read_name(message, at)?;
        ensure!(end == message.len(), "RDATA goes on behind its name");
        Ok(name_text(&name))
    };
    Ok(match rtype {
        rtype::A => std::net::Ipv4Addr::from(<[u8; 4]>::try_from(rdata).context("A")?).to_string(),
        rtype::AAAA => std::net::Ipv6Addr::from(<[u8; 16]>::try_from(rdata).context("AAAA")?).to_string(),
        rtype::NS | rtype::CNAME | rtype::DNAME | rtype::PTR => named(at)?,
        rtype::MX => format!("{} {}", be16(rdata, 0)?, named(at + 2)?),
        // All that a negative answer is judged by is owner and TTL.
        rtype::SOA => {
            let (_, second) = read_name(message, at)?;
            let (_, rest) = read_name(message, second)?;
            ensure!(rest + 20 == message.len(), "SOA of another length");
            String::new()
        }
        rtype::TXT | rtype::HINFO => {
            let (mut words, mut rest) = (Vec::new(), rdata);
            while let Some((length, more)) = rest.split_first() {
                let word = more.get(..usize::from(*length)).context("a string is cut")?;
                words.push(format!("\"{}\"", String::from_utf8_lossy(word)));
                rest = &more[word.len()..];
            }
            words.join(" ")
        }
        _ => hex(rdata),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    // RFC 1035 section 4.1.4 has the names; the message was encoded by hand.
    #[test]
    fn a_reply_is_read_to_its_last_byte() {
        let mut message =
            b"\x12\x34\x85\x00\x00\x01\x00\x01\x00\x00\x00\x01\x03www\x07example\x03com\x00\x00\x01\x00\x01\
            \xc0\x0c\x00\x01\x00\x01\x00\x00\x0e\x10\x00\x04\xc0\x00\x02\x50\
            \x00\x00\x29\x04\xd0\x00\x00\x80\x00\x00\x0b\x00\x08\x00\x07\x00\x01\x18\x10\xc6\x33\x64"
                .to_vec();
        let line =
            "NOERROR ar 1/1/0/1; www.example.com 3600 A 192.0.2.80; opt 1232 do ecs=198.51.100.0/24/16";
        assert_eq!(Reply::read(&message).unwrap().line().unwrap(), line);
        for cut in 0..message.len() {
            assert!(Reply::read(&message[..cut]).is_err(), "{cut}");
        }
        message.push(0);
        assert!(Reply::read(&message).is_err());
        // The owner points at itself.
        message.pop();
        message[34] = 33;
        assert!(Reply::read(&message).is_err());
    }

    #[test]
    fn queries_are_as_written() {
        let query = Query::new("a\\.b.\\000\\255.", 1)
            .flags(flag::RD)
            .option(&subnet("198.51.100.0/22"));
        let want = b"\x00\x07\x01\x00\x00\x01\x00\x00\x00\x00\x00\x01\x03a.b\x02\x00\xff\x00\x00\x01\x00\x01\
            \x00\x00\x29\x04\xd0\x00\x00\x00\x00\x00\x0b\x00\x08\x00\x07\x00\x01\x16\x00\xc6\x33\x64";
        assert_eq!(query.message(7), want);
        assert_eq!(name_text(&name("a\\.b.\\000\\255.")), "a\\046b.\\000\\255");
        assert_eq!((name("."), name_text(&[0])), (vec![0], ".".to_owned()));
    }
}
