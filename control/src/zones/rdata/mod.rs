//! RDATA from presentation format to uncompressed wire form. Most types are the `domain` crate's; what is
//! here feeds it our tokens ([`Tokens`]) and remembers which one was read when something is wrong. The other types of
//! IANA's registry are rows of `fields`; `svcb` is its own. Called by `master`, once a record.

mod fields;
mod loc;
mod svcb;

use super::lexer::{Token, octets};
use crate::config::model::Name;
use crate::config::units::zone_ttl;
use domain::base::charstr::CharStr;
use domain::base::iana::Rtype;
use domain::base::name::ParsedName;
use domain::base::rdata::{ComposeRecordData, ParseRecordData};
use domain::base::scan::{ConvertSymbols, EntrySymbol, Scanner, ScannerError, Symbol};
use domain::dep::octseq::Parser;
use domain::dep::octseq::str::Str;
use domain::rdata::ZoneRecordData;
use domain::utils::base64;
use std::fmt;

/// Longest name in wire form (RFC 1035 section 2.3.4).
const NAME_MAX: usize = 255;

/// What is wrong with a token, or after the last one.
#[derive(Debug)]
pub(crate) struct ScanError(pub(crate) &'static str);

impl fmt::Display for ScanError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl std::error::Error for ScanError {}

impl ScannerError for ScanError {
    fn custom(msg: &'static str) -> Self {
        Self(msg)
    }

    fn end_of_entry() -> Self {
        Self("the record ends too early")
    }

    fn short_buf() -> Self {
        Self("too long")
    }

    fn trailing_tokens() -> Self {
        Self("too many fields")
    }
}

/// A name token in wire form; relative ones end with `origin`, `@` is the origin itself.
pub(crate) fn name(text: &[u8], token: Token, origin: &Name) -> Result<Name, ScanError> {
    let text = &text[token.start..token.end];
    if text == b"@" && !token.quoted {
        return Ok(origin.clone());
    }
    if text == b"." {
        return Ok(Name::root());
    }
    let mut wire: Vec<u8> = Vec::with_capacity(text.len() + 1 + origin.len());
    wire.push(0);
    let mut label = 0; // where the open label's length octet is
    for (byte, escaped) in octets(text) {
        if byte == b'.' && !escaped {
            close_label(&mut wire, label)?;
            label = wire.len();
            wire.push(0);
        } else if !escaped && !byte.is_ascii_graphic() {
            return Err(ScanError(
                "a name holds an octet that is not ASCII: write it xn--... or \\DDD",
            ));
        } else {
            wire.push(byte);
        }
    }
    // An open label that is empty is the root: the name ended with a dot.
    if wire.len() - label > 1 {
        close_label(&mut wire, label)?;
        wire.extend_from_slice(origin.as_slice());
    } else if label == 0 {
        return Err(ScanError("empty name"));
    }
    if wire.len() > NAME_MAX {
        return Err(ScanError("name longer than 255 octets"));
    }
    Name::from_octets(wire).map_err(|_| ScanError("not a domain name"))
}

fn close_label(wire: &mut [u8], label: usize) -> Result<(), ScanError> {
    match wire.len() - label - 1 {
        0 => Err(ScanError("a name with an empty label")),
        length @ 1..=63 => {
            wire[label] = length as u8;
            Ok(())
        }
        _ => Err(ScanError("label longer than 63 octets")),
    }
}

/// The RDATA tokens of one record.
pub(crate) struct Tokens<'a> {
    text: &'a [u8],
    tokens: &'a [Token],
    origin: &'a Name,
    /// Tokens read so far.
    read: usize,
}

/// Parses the RDATA in `tokens` into `wire`. An error comes with the index of the token that is wrong;
/// the number of tokens if one is missing.
pub(crate) fn parse(
    rtype: Rtype,
    text: &[u8],
    tokens: &[Token],
    origin: &Name,
    wire: &mut Vec<u8>,
) -> Result<(), (usize, ScanError)> {
    let mut scanner = Tokens {
        text,
        tokens,
        origin,
        read: 0,
    };
    let generic = tokens.first();
    let generic = generic.is_some_and(|t| !t.quoted && &text[t.start..t.end] == b"\\#");
    let result = match (rtype, fields::of(rtype)) {
        _ if generic => scan(rtype, &mut scanner, wire).and_then(|()| check_generic(rtype, wire)),
        (Rtype::SOA, _) => soa(&mut scanner, wire),
        (Rtype::SVCB | Rtype::HTTPS, _) => svcb::parse(&mut scanner, wire),
        (_, Some(row)) => row
            .iter()
            .try_for_each(|field| fields::parse(*field, &mut scanner, wire)),
        _ => scan(rtype, &mut scanner, wire),
    };
    // What was read last is what was wrong, unless the record just ended.
    let missing = matches!(&result, Err(error) if error.0 == ScanError::end_of_entry().0);
    let at = if missing {
        tokens.len()
    } else {
        scanner.read.saturating_sub(1)
    };
    result.map_err(|error| (at, error))?;
    if scanner.read < tokens.len() {
        return Err((scanner.read, ScanError::trailing_tokens()));
    }
    if wire.len() > usize::from(u16::MAX) {
        return Err((0, ScanError("more than 65,535 octets of RDATA")));
    }
    Ok(())
}

/// SOA, whose times may have units.
fn soa(scanner: &mut Tokens<'_>, wire: &mut Vec<u8>) -> Result<(), ScanError> {
    wire.extend_from_slice(scanner.scan_name()?.as_slice());
    wire.extend_from_slice(scanner.scan_name()?.as_slice());
    for field in 0..5 {
        let token = scanner.next()?;
        let text = &scanner.text[token.start..token.end];
        // The serial is a plain number.
        let digits = text.iter().all(u8::is_ascii_digit);
        let value = zone_ttl(text).filter(|_| digits || field > 0);
        let value = value.ok_or(ScanError(match field {
            0 => "the serial is not a number of 32 bits",
            _ => "not a time such as 3600 or 1h",
        }))?;
        wire.extend_from_slice(&value.to_be_bytes());
    }
    Ok(())
}

/// A type of the `domain` crate, or any in the generic form.
fn scan(rtype: Rtype, scanner: &mut Tokens<'_>, wire: &mut Vec<u8>) -> Result<(), ScanError> {
    let data = ZoneRecordData::scan(rtype, scanner).map_err(|error| match error.0 {
        // Of the `domain` crate, for types without a parser.
        "unknown record type with concrete data" => {
            ScanError("data of this type is written `\\# LENGTH HEX` (RFC 3597 section 5)")
        }
        _ => error,
    })?;
    data.compose_rdata(wire).map_err(|_| ScanError("too long"))
}

/// RFC 3597 section 5: a known type in the generic form must still be well-formed.
fn check_generic(rtype: Rtype, wire: &[u8]) -> Result<(), ScanError> {
    const WRONG: ScanError = ScanError("the octets are not RDATA of this type");
    if matches!(rtype, Rtype::SVCB | Rtype::HTTPS) {
        return svcb::check(wire);
    }
    if let Some(row) = fields::of(rtype) {
        return fields::check(row, wire).then_some(()).ok_or(WRONG);
    }
    let mut parser = Parser::from_ref(wire);
    match ZoneRecordData::<&[u8], ParsedName<&[u8]>>::parse_rdata(rtype, &mut parser) {
        Ok(_) if parser.remaining() == 0 => Ok(()),
        _ => Err(WRONG),
    }
}

/// Base 64 in one token.
fn base64_text(text: &[u8]) -> Result<Vec<u8>, ScanError> {
    let text = std::str::from_utf8(text).map_err(|_| ScanError("not base 64"))?;
    base64::decode(text).map_err(|_| ScanError("not base 64"))
}

impl Tokens<'_> {
    fn next(&mut self) -> Result<Token, ScanError> {
        let token = self
            .tokens
            .get(self.read)
            .copied()
            .ok_or_else(ScanError::end_of_entry)?;
        self.read += 1;
        Ok(token)
    }

    fn append(&self, token: Token, to: &mut Vec<u8>) {
        to.extend(octets(&self.text[token.start..token.end]).map(|(byte, _)| byte));
    }

    fn symbols(&self, token: Token) -> impl Iterator<Item = Symbol> {
        octets(&self.text[token.start..token.end]).map(|(byte, escaped)| match (byte, escaped) {
            (b' '..=b'~', false) => Symbol::Char(char::from(byte)),
            (b' '..=b'~', true) => Symbol::SimpleEscape(byte),
            _ => Symbol::DecimalEscape(byte),
        })
    }
}

impl Scanner for Tokens<'_> {
    type Octets = Vec<u8>;
    type OctetsBuilder = Vec<u8>;
    type Name = Name;
    type Error = ScanError;

    fn has_space(&self) -> bool {
        self.tokens.get(self.read).is_some_and(|token| !token.glued)
    }

    fn continues(&mut self) -> bool {
        self.read < self.tokens.len()
    }

    fn scan_symbols<F>(&mut self, mut op: F) -> Result<(), ScanError>
    where
        F: FnMut(Symbol) -> Result<(), ScanError>,
    {
        let token = self.next()?;
        self.symbols(token).try_for_each(&mut op)
    }

    fn scan_entry_symbols<F>(&mut self, mut op: F) -> Result<(), ScanError>
    where
        F: FnMut(EntrySymbol) -> Result<(), ScanError>,
    {
        while self.continues() {
            let token = self.next()?;
            self.symbols(token).try_for_each(|symbol| op(symbol.into()))?;
            op(EntrySymbol::EndOfToken)?;
        }
        Ok(())
    }

    fn convert_token<C: ConvertSymbols<Symbol, ScanError>>(
        &mut self,
        mut convert: C,
    ) -> Result<Vec<u8>, ScanError> {
        let token = self.next()?;
        let mut result = Vec::new();
        for symbol in self.symbols(token) {
            result.extend_from_slice(convert.process_symbol(symbol)?.unwrap_or_default());
        }
        result.extend_from_slice(convert.process_tail()?.unwrap_or_default());
        Ok(result)
    }

    fn convert_entry<C: ConvertSymbols<EntrySymbol, ScanError>>(
        &mut self,
        mut convert: C,
    ) -> Result<Vec<u8>, ScanError> {
        let mut result = Vec::new();
        while self.continues() {
            let token = self.next()?;
            for symbol in self.symbols(token) {
                result.extend_from_slice(convert.process_symbol(symbol.into())?.unwrap_or_default());
            }
            // White space may stand anywhere in hexadecimal and base 64, so ends of tokens say nothing.
        }
        result.extend_from_slice(convert.process_tail()?.unwrap_or_default());
        Ok(result)
    }

    fn scan_octets(&mut self) -> Result<Vec<u8>, ScanError> {
        let token = self.next()?;
        let mut result = Vec::with_capacity(token.end - token.start);
        self.append(token, &mut result);
        Ok(result)
    }

    fn scan_svcb_octets(&mut self) -> Result<Vec<u8>, ScanError> {
        let mut result = self.scan_octets()?;
        if let Some(next) = self
            .tokens
            .get(self.read)
            .filter(|next| next.glued && next.quoted)
        {
            self.append(*next, &mut result);
            self.read += 1;
        }
        Ok(result)
    }

    fn scan_ascii_str<F, T>(&mut self, op: F) -> Result<T, ScanError>
    where
        F: FnOnce(&str) -> Result<T, ScanError>,
    {
        let octets = self.scan_octets()?;
        match std::str::from_utf8(&octets) {
            Ok(text) if text.is_ascii() => op(text),
            _ => Err(ScanError("not ASCII")),
        }
    }

    fn scan_name(&mut self) -> Result<Name, ScanError> {
        let token = self.next()?;
        name(self.text, token, self.origin)
    }

    fn scan_charstr(&mut self) -> Result<CharStr<Vec<u8>>, ScanError> {
        let octets = self.scan_octets()?;
        CharStr::from_octets(octets).map_err(|_| ScanError("string longer than 255 octets"))
    }

    fn scan_string(&mut self) -> Result<Str<Vec<u8>>, ScanError> {
        Str::from_utf8(self.scan_octets()?).map_err(|_| ScanError("not UTF-8"))
    }

    fn scan_charstr_entry(&mut self) -> Result<Vec<u8>, ScanError> {
        let mut result = Vec::new();
        loop {
            let text = self.scan_charstr()?;
            // At most 255, as `CharStr` made sure.
            result.push(text.as_slice().len() as u8);
            result.extend_from_slice(text.as_slice());
            if !self.continues() {
                return Ok(result);
            }
        }
    }

    fn scan_opt_unknown_marker(&mut self) -> Result<bool, ScanError> {
        let found = self
            .tokens
            .get(self.read)
            .is_some_and(|token| !token.quoted && &self.text[token.start..token.end] == b"\\#");
        self.read += usize::from(found);
        Ok(found)
    }

    fn octets_builder(&mut self) -> Result<Vec<u8>, ScanError> {
        Ok(Vec::new())
    }
}
