//! Reads a master file (RFC 1035 section 5, RFC 2308 section 4 for $TTL): directives, owners, TTLs,
//! classes and types. Called by `zones::load`.

use super::Findings;
use super::generate;
use super::lexer::{Lexer, Token, octets};
use super::rdata;
use super::sets::{Added, Place, Sets, lower, parents};
use crate::config::model::Name;
use crate::config::service::TTL_MAX;
use crate::config::units::zone_ttl;
use crate::config::{Diagnostic, Severity, Source, suggestion};
use domain::base::iana::Rtype;
use sha2::{Digest, Sha256};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Files that one $INCLUDE may lead to in a row: more is a circle.
const INCLUDE_DEPTH_MAX: usize = 8;
/// Types that are often meant, for suggestions.
const COMMON_TYPES: [&str; 18] = [
    "A", "AAAA", "CAA", "CNAME", "DNAME", "DNSKEY", "DS", "HTTPS", "MX", "NAPTR", "NS", "PTR", "SOA", "SRV",
    "SSHFP", "SVCB", "TLSA", "TXT",
];

/// A zone as read: its records, the texts they stand in, and what was wrong.
pub(crate) struct ZoneText {
    pub(crate) apex: Name,
    pub(crate) sets: Sets,
    pub(crate) sources: Vec<Source>,
    pub(super) findings: Findings,
}

impl ZoneText {
    /// A finding at a record.
    pub(super) fn push(&mut self, severity: Severity, place: Place, message: String, help: Option<&str>) {
        let source = &self.sources[place.file];
        let end = source.text()[place.offset..]
            .iter()
            .position(u8::is_ascii_whitespace);
        let end = end.map_or(source.text().len(), |length| place.offset + length);
        let mut diagnostic = source.at(severity, place.offset..end, message);
        diagnostic.help = help.map(str::to_owned);
        self.findings.push(diagnostic);
    }

    /// "line 12 of FILE", to point at another record.
    pub(super) fn line(&self, place: Place) -> String {
        super::line(&self.sources, place)
    }
}

/// Reads the zone `apex` from `file` and what it includes. What was read goes into `hash`.
pub(crate) fn read(apex: &Name, file: &Path, hash: &mut Sha256) -> ZoneText {
    let apex_key = lower(apex);
    let zone = ZoneText {
        apex: apex.clone(),
        sets: Sets::default(),
        sources: Vec::new(),
        findings: Findings::default(),
    };
    let mut reader = Reader {
        zone,
        apex_key,
        hash,
        wire: Vec::new(),
    };
    match std::fs::read(file) {
        Ok(text) => reader.file(file, text, State::new(apex.clone()), 0),
        Err(error) => {
            let message = format!("cannot read the zone file: {error}");
            reader
                .zone
                .findings
                .push(Diagnostic::file(Severity::Error, file, message));
        }
    }
    reader.zone
}

/// What later entries take from earlier ones.
#[derive(Clone)]
struct State {
    origin: Name,
    owner: Option<(Name, Vec<u8>)>,
    /// $TTL.
    default_ttl: Option<u32>,
    /// The last TTL that was written out.
    last_ttl: Option<u32>,
}

impl State {
    fn new(origin: Name) -> Self {
        Self {
            origin,
            owner: None,
            default_ttl: None,
            last_ttl: None,
        }
    }
}

struct Reader<'h> {
    zone: ZoneText,
    apex_key: Vec<u8>,
    hash: &'h mut Sha256,
    /// RDATA of the record being read.
    wire: Vec<u8>,
}

/// What is wrong with an entry: where, what, what to do.
pub(super) struct Wrong(Range<usize>, String, Option<String>);

impl Wrong {
    pub(super) fn new(span: Range<usize>, message: impl Into<String>) -> Self {
        Self(span, message.into(), None)
    }

    pub(super) fn help(mut self, help: impl Into<String>) -> Self {
        self.2 = Some(help.into());
        self
    }
}

/// One entry and its file.
pub(super) struct Entry<'a> {
    pub(super) text: &'a [u8],
    pub(super) tokens: &'a [Token],
    file: usize,
    indented: bool,
    /// Where to point at, when the text is not the file's but made by $GENERATE.
    made_at: Option<Range<usize>>,
}

impl Entry<'_> {
    pub(super) fn span(&self, index: usize) -> Range<usize> {
        if let Some(span) = &self.made_at {
            return span.clone();
        }
        match self.tokens.get(index).or(self.tokens.last()) {
            Some(token) if index < self.tokens.len() => token.start..token.end,
            Some(last) => last.end..last.end,
            None => 0..0,
        }
    }

    pub(super) fn word(&self, index: usize) -> Option<&[u8]> {
        self.tokens
            .get(index)
            .map(|token| &self.text[token.start..token.end])
    }

    pub(super) fn show(&self, index: usize) -> String {
        self.word(index)
            .map(|word| String::from_utf8_lossy(word).into_owned())
            .unwrap_or_default()
    }

    fn name(&self, index: usize, origin: &Name) -> Result<Name, Wrong> {
        let Some(&token) = self.tokens.get(index) else {
            return Err(Wrong::new(self.span(index), "a domain name is missing here"));
        };
        rdata::name(self.text, token, origin).map_err(|e| Wrong::new(self.span(index), e.0))
    }

    fn end(&self, index: usize) -> Result<(), Wrong> {
        match self.tokens.len() > index {
            true => Err(Wrong::new(
                self.span(index),
                format!("unexpected `{}`", self.show(index)),
            )),
            false => Ok(()),
        }
    }

    fn ttl(&self, index: usize) -> Result<u32, Wrong> {
        let value = self.word(index).and_then(zone_ttl);
        match value {
            Some(ttl) if i64::from(ttl) <= TTL_MAX => Ok(ttl),
            Some(_) => Err(Wrong::new(
                self.span(index),
                "a TTL is at most 2147483647 (RFC 2181 section 8)",
            )),
            None => {
                let message = format!("`{}` is not a TTL such as 3600 or 1h", self.show(index));
                Err(Wrong::new(self.span(index), message))
            }
        }
    }
}

impl Reader<'_> {
    /// Reads a file and what it includes, as far as errors allow.
    fn file(&mut self, path: &Path, text: Vec<u8>, mut state: State, depth: usize) {
        // The length keeps two files apart from one with both texts.
        self.hash.update((text.len() as u64).to_le_bytes());
        self.hash.update(&text);
        let text = Arc::new(text);
        let file = self.zone.sources.len();
        self.zone.sources.push(Source::new(path, Arc::clone(&text)));
        let mut lexer = Lexer::new(&text);
        let mut tokens = Vec::new();
        while !self.zone.findings.enough()
            && let Some(indented) = lexer.next_entry(&mut tokens)
        {
            let result = match indented {
                Err(error) => Err(Wrong::new(error.at..error.at + 1, error.message)),
                Ok(indented) => self.entry(
                    &Entry {
                        text: &text,
                        tokens: &tokens,
                        file,
                        indented,
                        made_at: None,
                    },
                    &mut state,
                    depth,
                ),
            };
            if let Err(Wrong(span, message, help)) = result {
                let mut diagnostic = self.zone.sources[file].at(Severity::Error, span, message);
                diagnostic.help = help;
                self.zone.findings.push(diagnostic);
            }
        }
    }

    fn entry(&mut self, entry: &Entry<'_>, state: &mut State, depth: usize) -> Result<(), Wrong> {
        let directive = entry
            .word(0)
            .filter(|word| word.first() == Some(&b'$') && !entry.indented);
        match directive.map(<[u8]>::to_ascii_uppercase).as_deref() {
            None => self.record(entry, state),
            Some(b"$ORIGIN") => {
                state.origin = entry.name(1, &state.origin)?;
                entry.end(2)
            }
            Some(b"$TTL") => {
                state.default_ttl = Some(entry.ttl(1)?);
                entry.end(2)
            }
            Some(b"$INCLUDE") => self.include(entry, state, depth),
            Some(b"$GENERATE") => self.generate(entry, state),
            Some(_) => {
                let message = format!("unknown directive `{}`", entry.show(0));
                Err(Wrong::new(entry.span(0), message)
                    .help("there are $ORIGIN, $TTL, $INCLUDE and $GENERATE"))
            }
        }
    }

    /// `$INCLUDE FILE [ORIGIN]`; the file is relative to the one that includes it. Origin, owner and
    /// TTLs after it are those from before it.
    fn include(&mut self, entry: &Entry<'_>, state: &State, depth: usize) -> Result<(), Wrong> {
        let Some(token) = entry.tokens.get(1) else {
            return Err(Wrong::new(entry.span(1), "$INCLUDE needs a file name"));
        };
        let name: Vec<u8> = octets(&entry.text[token.start..token.end])
            .map(|(byte, _)| byte)
            .collect();
        let base = self.zone.sources[entry.file]
            .path
            .parent()
            .unwrap_or(Path::new(""));
        let path: PathBuf = base.join(String::from_utf8_lossy(&name).as_ref());
        let mut inner = state.clone();
        if entry.tokens.len() > 2 {
            inner.origin = entry.name(2, &state.origin)?;
        }
        entry.end(3)?;
        if depth == INCLUDE_DEPTH_MAX {
            let message =
                format!("more than {INCLUDE_DEPTH_MAX} files include each other: is this a circle?");
            return Err(Wrong::new(entry.span(1), message));
        }
        let text = std::fs::read(&path)
            .map_err(|error| Wrong::new(entry.span(1), format!("cannot read {}: {error}", path.display())))?;
        self.file(&path, text, inner, depth + 1);
        Ok(())
    }

    /// `$GENERATE RANGE OWNER [TTL] [CLASS] TYPE RDATA`: a record for each number of the range.
    fn generate(&mut self, entry: &Entry<'_>, state: &mut State) -> Result<(), Wrong> {
        let made = generate::Template::new(entry)?;
        let (mut text, mut tokens) = (Vec::new(), Vec::new());
        for number in made.numbers() {
            text.clear();
            made.line(number, &mut text)?;
            if let Some(Err(error)) = Lexer::new(&text).next_entry(&mut tokens) {
                return Err(Wrong::new(entry.span(0), error.message));
            }
            let one = Entry {
                text: &text,
                tokens: &tokens,
                file: entry.file,
                indented: false,
                made_at: Some(entry.span(0)),
            };
            self.record(&one, state).map_err(|Wrong(span, message, help)| {
                let line = String::from_utf8_lossy(&text);
                Wrong(span, format!("{message}, in `{line}`"), help)
            })?;
        }
        Ok(())
    }

    fn record(&mut self, entry: &Entry<'_>, state: &mut State) -> Result<(), Wrong> {
        let mut index = 0;
        if !entry.indented {
            let owner = entry.name(0, &state.origin)?;
            index = 1;
            if state
                .owner
                .as_ref()
                .is_none_or(|(last, _)| last.as_slice() != owner.as_slice())
            {
                let key = lower(&owner);
                state.owner = Some((owner, key));
            }
        }
        let Some((owner, key)) = &state.owner else {
            let wrong = Wrong::new(
                entry.span(0),
                "a line that begins with space takes the owner before it",
            );
            return Err(wrong.help("there is none yet: begin the line with a name"));
        };
        let (ttl, rtype, rdata_index) = fields(entry, index)?;
        if ttl.is_some() {
            state.last_ttl = ttl;
        }
        let Some(ttl) = ttl.or(state.default_ttl).or(state.last_ttl) else {
            let wrong = Wrong::new(entry.span(rdata_index - 1), "this record has no TTL");
            return Err(wrong.help("write one, or begin the file with a default such as `$TTL 3600`"));
        };
        if parents(key, self.apex_key.len()).last() != Some(self.apex_key.as_slice()) {
            let message = format!("{owner}. lies outside the zone {}.", self.zone.apex);
            let help = "a name with a final dot is absolute, one without is under the origin";
            return Err(Wrong::new(entry.span(0), message).help(help));
        }
        self.wire.clear();
        let rdata = entry.tokens.get(rdata_index..).unwrap_or_default();
        rdata::parse(rtype, entry.text, rdata, &state.origin, &mut self.wire).map_err(|(at, error)| {
            Wrong::new(
                entry.span(rdata_index + at),
                format!("{rtype} record: {}", error.0),
            )
        })?;
        let place = Place {
            file: entry.file,
            offset: entry.span(0).start,
        };
        match self
            .zone
            .sets
            .add(owner, key, rtype.to_int(), ttl, &self.wire, place)
        {
            Added::Plain => {}
            Added::Duplicate => {
                let message =
                    format!("the same {rtype} record of {owner}. is there before: this one is dropped");
                self.zone.push(Severity::Warning, place, message, None);
            }
            // Each signature has the TTL of the set that it covers (RFC 4034 section 3).
            Added::OtherTtl { .. } if rtype == Rtype::RRSIG => {}
            Added::OtherTtl { kept } => {
                let message =
                    format!("the {rtype} records of {owner}. differ in TTL: all get the lowest, {kept}");
                let help = "give the set one TTL (RFC 2181 section 5.2)";
                self.zone.push(Severity::Warning, place, message, Some(help));
            }
        }
        Ok(())
    }
}

/// TTL, type, and the index of the first token of RDATA: TTL and class come in any order.
fn fields(entry: &Entry<'_>, mut index: usize) -> Result<(Option<u32>, Rtype, usize), Wrong> {
    let mut ttl = None;
    let mut class_seen = false;
    loop {
        let Some(word) = entry.word(index) else {
            return Err(Wrong::new(entry.span(index), "a record type is missing here"));
        };
        if ttl.is_none() && word.first().is_some_and(u8::is_ascii_digit) {
            ttl = Some(entry.ttl(index)?);
        } else if !class_seen && word.eq_ignore_ascii_case(b"IN") {
            class_seen = true;
        } else if ["CH", "HS", "CS"]
            .iter()
            .any(|class| word.eq_ignore_ascii_case(class.as_bytes()))
        {
            return Err(Wrong::new(entry.span(index), "only class IN is served"));
        } else {
            return Ok((ttl, rtype(entry, index)?, index + 1));
        }
        index += 1;
    }
}

fn rtype(entry: &Entry<'_>, index: usize) -> Result<Rtype, Wrong> {
    let mut word = entry.show(index);
    if word.eq_ignore_ascii_case("NSAP-PTR") {
        word.remove(4);
    }
    match word.parse::<Rtype>() {
        // RFC 6895 section 3.1: 128 to 255 and OPT are no data types; 0 and 65535 are reserved.
        Ok(rtype) if matches!(rtype.to_int(), 0 | 41 | 128..=255 | 65535) => Err(Wrong::new(
            entry.span(index),
            format!("{word} is no type that a zone can hold"),
        )),
        Ok(rtype) => Ok(rtype),
        Err(_) => {
            let wrong = Wrong::new(entry.span(index), format!("`{word}` is no record type"));
            Err(match suggestion(&word, COMMON_TYPES) {
                Some(help) => wrong.help(help),
                None => wrong.help("unknown types are written TYPE123 with RDATA \\# LENGTH HEX (RFC 3597)"),
            })
        }
    }
}
