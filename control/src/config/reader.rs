//! Typed reads from a TOML document that keep every place: a wrong value is reported where it
//! stands and read as absent, so that one load finds all that is wrong. Used by the sections.
//!
//! A table knows which keys it was asked for: what is left over is unknown, and the keys asked for
//! are what it suggests.

use super::diagnostics::{Diagnostic, Diagnostics, Severity, Source, suggestion};
use super::units;
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::ops::{Range, RangeInclusive};
use std::time::Duration;
use toml::de::{DeTable, DeValue};

/// Where findings about one file go.
pub(crate) struct Report {
    pub(crate) source: Source,
    found: RefCell<Diagnostics>,
}

impl Report {
    pub(crate) fn new(source: Source) -> Self {
        Self {
            source,
            found: RefCell::default(),
        }
    }

    /// Reports an error at a byte range.
    pub(crate) fn error(&self, span: Range<usize>, message: impl Into<String>) {
        self.push(self.source.at(Severity::Error, span, message.into()));
    }

    /// Reports an error with what to do about it, if that is known.
    pub(crate) fn error_help(&self, span: Range<usize>, message: impl Into<String>, help: Option<String>) {
        let mut diagnostic = self.source.at(Severity::Error, span, message.into());
        diagnostic.help = help;
        self.push(diagnostic);
    }

    /// Reports what is allowed and likely not meant.
    pub(crate) fn warning(&self, span: Range<usize>, message: impl Into<String>, help: impl Into<String>) {
        self.push(self.source.at(Severity::Warning, span, message.into()).help(help));
    }

    /// Adds a finished finding.
    pub(crate) fn push(&self, diagnostic: Diagnostic) {
        self.found.borrow_mut().push(diagnostic);
    }

    /// "line 12", of an offset, to point at another place of this file.
    pub(crate) fn line(&self, span: &Range<usize>) -> String {
        format!("line {}", self.source.place(span.start).0)
    }

    /// Everything found.
    pub(crate) fn into_found(self) -> Diagnostics {
        self.found.into_inner()
    }
}

/// A value and where it stands.
#[derive(Clone, Debug)]
pub(crate) struct At<T> {
    pub(crate) value: T,
    pub(crate) span: Range<usize>,
}

/// A TOML table being read.
pub(crate) struct Table<'a> {
    pub(crate) report: &'a Report,
    entries: &'a DeTable<'a>,
    /// How it is called in messages: "[[port]]".
    what: &'static str,
    pub(crate) span: Range<usize>,
    asked: RefCell<BTreeSet<&'static str>>,
}

impl<'a> Table<'a> {
    pub(crate) fn new(
        report: &'a Report,
        entries: &'a DeTable<'a>,
        what: &'static str,
        span: Range<usize>,
    ) -> Self {
        Self {
            report,
            entries,
            what,
            span,
            asked: RefCell::default(),
        }
    }

    /// The value of `key`, if given.
    pub(crate) fn get(&self, key: &'static str) -> Option<Value<'a>> {
        self.asked.borrow_mut().insert(key);
        let value = self.entries.get(key)?;
        Some(Value {
            report: self.report,
            key,
            value: value.get_ref(),
            span: value.span(),
        })
    }

    /// The value of `key`; reports its absence.
    pub(crate) fn need(&self, key: &'static str) -> Option<Value<'a>> {
        let value = self.get(key);
        if value.is_none() {
            self.report.error_help(
                self.span.clone(),
                format!("{} has no `{key}`", self.what),
                Some(format!("add `{key} = ...`")),
            );
        }
        value
    }

    /// The tables of `[[key]]`, each read by `read`.
    pub(crate) fn tables<T>(
        &self,
        key: &'static str,
        what: &'static str,
        read: impl Fn(&Table<'a>) -> T,
    ) -> Vec<T> {
        let Some(value) = self.get(key) else {
            return Vec::new();
        };
        let DeValue::Array(items) = value.value else {
            let message = format!("`{key}` must be written {what}, once for each");
            self.report.error(value.span, message);
            return Vec::new();
        };
        let tables = items.iter().filter_map(|item| {
            let item = Value {
                report: self.report,
                key,
                value: item.get_ref(),
                span: item.span(),
            };
            item.table(what)
        });
        tables.map(|table| table.read(&read)).collect()
    }

    /// Reads it by `read`, then reports the keys that were not asked for.
    pub(crate) fn read<T>(&self, read: impl FnOnce(&Table<'a>) -> T) -> T {
        let result = read(self);
        let asked = self.asked.borrow();
        for (key, _) in self
            .entries
            .iter()
            .filter(|(key, _)| !asked.contains(key.get_ref().as_ref()))
        {
            let word = key.get_ref();
            let help = suggestion(word, asked.iter().copied()).unwrap_or_else(|| {
                format!(
                    "keys here are {}",
                    asked.iter().copied().collect::<Vec<_>>().join(", ")
                )
            });
            self.report.error_help(
                key.span(),
                format!("unknown key `{word}` in {}", self.what),
                Some(help),
            );
        }
        result
    }

    /// Every key and value, for tables whose keys are names of the user's.
    pub(crate) fn pairs(&self) -> impl Iterator<Item = (At<&'a str>, Value<'a>)> {
        self.entries.iter().map(|(key, value)| {
            let name = At {
                value: key.get_ref().as_ref(),
                span: key.span(),
            };
            (
                name,
                Value {
                    report: self.report,
                    key: "value",
                    value: value.get_ref(),
                    span: value.span(),
                },
            )
        })
    }
}

/// A TOML value being read.
#[derive(Clone)]
pub(crate) struct Value<'a> {
    pub(crate) report: &'a Report,
    key: &'static str,
    value: &'a DeValue<'a>,
    pub(crate) span: Range<usize>,
}

impl<'a> Value<'a> {
    /// Reports an error at this value; `None`, for `return value.wrong(...)`.
    pub(crate) fn wrong<T>(&self, message: impl Into<String>) -> Option<T> {
        self.report.error(self.span.clone(), message);
        None
    }

    fn wrong_type<T>(&self, wanted: &str) -> Option<T> {
        let message = format!("`{}` must be {wanted}, not {}", self.key, type_name(self.value));
        self.wrong(message)
    }

    /// A string.
    pub(crate) fn string(&self) -> Option<&'a str> {
        match self.value {
            DeValue::String(text) => Some(text.as_ref()),
            _ => self.wrong_type("a string"),
        }
    }

    /// A string of printable ASCII without spaces, at most `longest` bytes, not empty.
    pub(crate) fn word(&self, longest: usize) -> Option<&'a str> {
        let text = self.string()?;
        if text.is_empty() {
            return self.wrong(format!("`{}` is empty", self.key));
        }
        if text.len() > longest {
            return self.wrong(format!("`{}` is longer than {longest} bytes", self.key));
        }
        if !text.bytes().all(|byte| byte.is_ascii_graphic()) {
            return self.wrong(format!(
                "`{}` may hold printable ASCII without spaces only",
                self.key
            ));
        }
        Some(text)
    }

    /// A boolean.
    pub(crate) fn boolean(&self) -> Option<bool> {
        match self.value {
            DeValue::Boolean(value) => Some(*value),
            _ => self.wrong_type("true or false"),
        }
    }

    /// An integer of `range`, which lies within `T`.
    pub(crate) fn integer<T: TryFrom<i64>>(&self, range: RangeInclusive<i64>) -> Option<T> {
        let DeValue::Integer(digits) = self.value else {
            return self.wrong_type("an integer");
        };
        let value = i64::from_str_radix(digits.as_str(), digits.radix()).ok();
        match value
            .filter(|value| range.contains(value))
            .and_then(|value| T::try_from(value).ok())
        {
            Some(value) => Some(value),
            None => {
                let message = format!(
                    "`{}` must be from {} to {}, not {digits}",
                    self.key,
                    range.start(),
                    range.end()
                );
                self.wrong(message)
            }
        }
    }

    /// A number, with a point or without.
    pub(crate) fn number(&self) -> Option<f64> {
        match self.value {
            DeValue::Float(value) => value.as_str().parse().ok(),
            DeValue::Integer(value) if value.radix() == 10 => value.as_str().parse().ok(),
            _ => self.wrong_type("a number"),
        }
    }

    /// Whether it is an integer, for keys of several shapes.
    pub(crate) fn is_integer(&self) -> bool {
        self.value.is_integer()
    }

    /// Whether it is a string, for keys of several shapes.
    pub(crate) fn is_string(&self) -> bool {
        self.value.is_str()
    }

    /// Whether it is a table, for keys of several shapes.
    pub(crate) fn is_table(&self) -> bool {
        self.value.is_table()
    }

    /// The items of an array.
    pub(crate) fn items(&self) -> Option<Vec<Value<'a>>> {
        let DeValue::Array(items) = self.value else {
            return self.wrong_type("an array");
        };
        let item = |item: &'a toml::Spanned<DeValue<'a>>| Value {
            report: self.report,
            key: self.key,
            value: item.get_ref(),
            span: item.span(),
        };
        Some(items.iter().map(item).collect())
    }

    /// The items of an array that may not be empty, for the reason `why`. None if that is wrong.
    pub(crate) fn some_items(&self, why: &str) -> Vec<Value<'a>> {
        match self.items() {
            Some(items) if items.is_empty() => {
                self.wrong::<()>(format!("`{}` is empty: {why}", self.key));
                items
            }
            items => items.unwrap_or_default(),
        }
    }

    /// A table, called `what` in messages.
    pub(crate) fn table(&self, what: &'static str) -> Option<Table<'a>> {
        match self.value {
            DeValue::Table(entries) => Some(Table::new(self.report, entries, what, self.span.clone())),
            _ => self.wrong_type(&format!("a table {what}")),
        }
    }

    /// An IP address that a host can have.
    pub(crate) fn address(&self) -> Option<IpAddr> {
        let text = self.string()?;
        let Ok(address) = text.parse::<IpAddr>() else {
            return self.wrong(format!("`{text}` is not an IPv4 or IPv6 address"));
        };
        let broadcast = address == IpAddr::from([255, 255, 255, 255]);
        if address.is_unspecified() || address.is_multicast() || broadcast || address.is_loopback() {
            return self.wrong(format!(
                "`{text}` is not an address that a host on the network can have"
            ));
        }
        if let IpAddr::V6(v6) = address
            && let Some(v4) = v6.to_ipv4_mapped()
        {
            return self.wrong(format!("`{text}` is an IPv4-mapped address: write {v4}"));
        }
        Some(address)
    }

    /// A size with a unit, bytes, within `range`, which `limits` says in words.
    pub(crate) fn size(&self, range: RangeInclusive<u64>, limits: &str) -> Option<u64> {
        let DeValue::String(text) = self.value else {
            return self.wrong_type("a size such as \"256MB\"");
        };
        match units::size(text) {
            Ok(bytes) if range.contains(&bytes) => Some(bytes),
            Ok(_) => self.wrong(format!("`{}` must be {limits}, not {text}", self.key)),
            Err(message) => self.wrong(message),
        }
    }

    /// A duration with a unit, within `range`, which `limits` says in words.
    pub(crate) fn duration(&self, range: RangeInclusive<Duration>, limits: &str) -> Option<Duration> {
        let DeValue::String(text) = self.value else {
            return self.wrong_type("a duration such as \"250ms\"");
        };
        match units::duration(text) {
            Ok(value) if range.contains(&value) => Some(value),
            Ok(_) => self.wrong(format!("`{}` must be {limits}, not {text}", self.key)),
            Err(message) => self.wrong(message),
        }
    }

    /// A share such as "10%", in thousandths, of at most `max`.
    pub(crate) fn share(&self, max: u32) -> Option<u32> {
        let DeValue::String(text) = self.value else {
            return self.wrong_type("a share such as \"10%\"");
        };
        match units::share(text) {
            Ok(share) if share <= max => Some(share),
            Ok(_) => self.wrong(format!(
                "`{}` must be at most {}%, not {text}",
                self.key,
                max / 10
            )),
            Err(message) => self.wrong(message),
        }
    }

    /// A distance with a unit, metres, of at most half way round the Earth.
    pub(crate) fn distance(&self) -> Option<u64> {
        let DeValue::String(text) = self.value else {
            return self.wrong_type("a distance such as \"100km\"");
        };
        match units::distance(text) {
            Ok(metres) if metres <= 20_100_000 => Some(metres),
            Ok(_) => self.wrong(format!("`{}` must be at most 20100km, not {text}", self.key)),
            Err(message) => self.wrong(message),
        }
    }

    /// A bandwidth with a unit, bits per second, not 0.
    pub(crate) fn bandwidth(&self) -> Option<u64> {
        let DeValue::String(text) = self.value else {
            return self.wrong_type("a bandwidth such as \"900Mbps\"");
        };
        match units::bandwidth(text) {
            Ok(0) => self.wrong(format!("`{}` cannot be 0", self.key)),
            Ok(bps) => Some(bps),
            Err(message) => self.wrong(message),
        }
    }

    /// One of a few words.
    pub(crate) fn choice<T: Clone>(&self, choices: &[(&str, T)]) -> Option<T> {
        let text = self.string()?;
        let found = choices.iter().find(|(word, _)| *word == text);
        if found.is_none() {
            let words: Vec<String> = choices.iter().map(|(word, _)| format!("\"{word}\"")).collect();
            let message = format!(
                "`{}` cannot be \"{text}\": it is {}",
                self.key,
                words.join(" or ")
            );
            let help = suggestion(text, choices.iter().map(|(word, _)| *word));
            self.report.error_help(self.span.clone(), message, help);
        }
        found.map(|(_, value)| value.clone())
    }
}

/// "a string", "an integer" ...
fn type_name(value: &DeValue<'_>) -> String {
    let name = value.type_str();
    let article = if name.starts_with(['a', 'i']) { "an" } else { "a" };
    format!("{article} {name}")
}
