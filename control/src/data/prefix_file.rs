//! Operators' prefix lists: text files with a prefix a line and what holds for it. Read by `config` for `[[clients]]`.
//!
//! ```text
//! # what is behind a hash is a comment
//! 192.0.2.0/24
//! 198.51.100.0/24   country=KR isp=KT
//! 2001:db8::/32     continent=EU location=52.4,4.9
//! 203.0.113.7       a single address is a prefix too
//! ```

use super::{Place, countries};
use crate::config::{Diagnostic, Diagnostics, Severity, Source, suggestion};
use crate::policy::chain::facts::Location;
use ipnet::IpNet;
use sha2::{Digest, Sha256};
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::net::IpAddr;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

/// Findings of one file that are told before the rest is left out.
const FINDINGS_MAX: usize = 20;
/// The keys of a line.
const KEYS: [&str; 4] = ["isp", "country", "continent", "location"];

/// A line of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Line {
    pub(crate) prefix: IpNet,
    /// What it says of the ISP: index in the configuration's.
    pub(crate) isp: Option<usize>,
    pub(crate) place: Place,
}

/// Reads a list and folds it into `hash`; `isps` are the names of the configuration's ISPs.
///
/// # Errors
/// Everything that is wrong, with line and column.
pub(crate) fn read(path: &Path, isps: &[&str], hash: &mut Sha256) -> Result<Vec<Line>, Diagnostics> {
    let mut found = Diagnostics::default();
    let text = match std::fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) => {
            let message = format!("cannot be read: {error}");
            found.push(Diagnostic::file(Severity::Error, path, message));
            return Err(found);
        }
    };
    hash.update((text.len() as u64).to_le_bytes());
    hash.update(text.as_bytes());
    let source = Source::new(path, Arc::new(text.as_bytes().to_vec()));
    let mut lines = Vec::new();
    let mut seen: HashMap<IpNet, usize> = HashMap::new();
    let mut start = 0;
    let mut wrong = 0usize;
    for (number, whole) in text.split_inclusive('\n').enumerate() {
        let here = start;
        start += whole.len();
        let read = line(whole, isps).and_then(|line| {
            let Some((line, span)) = line else { return Ok(None) };
            match seen.entry(line.prefix) {
                Entry::Occupied(first) => {
                    let message = format!(
                        "prefix {} is there twice, first in line {}",
                        line.prefix,
                        first.get()
                    );
                    Err(Wrong::new(span, message))
                }
                Entry::Vacant(place) => {
                    place.insert(number + 1);
                    Ok(Some(line))
                }
            }
        });
        match read {
            Ok(line) => lines.extend(line),
            Err(error) => {
                wrong += 1;
                if wrong <= FINDINGS_MAX {
                    let span = here + error.span.start..here + error.span.end;
                    let mut diagnostic = source.at(Severity::Error, span, error.message);
                    diagnostic.help = error.help;
                    found.push(diagnostic);
                }
            }
        }
    }
    if wrong > FINDINGS_MAX {
        let message = format!("and {} more lines are wrong", wrong - FINDINGS_MAX);
        found.push(Diagnostic::file(Severity::Error, path, message));
    }
    if wrong > 0 { Err(found) } else { Ok(lines) }
}

/// What is wrong in a line, and which bytes of it.
#[derive(Debug)]
struct Wrong {
    span: Range<usize>,
    message: String,
    help: Option<String>,
}

impl Wrong {
    fn new(span: Range<usize>, message: impl Into<String>) -> Self {
        Self {
            span,
            message: message.into(),
            help: None,
        }
    }
}

/// Reads one line: `None` if there is nothing on it. Gives where the prefix stands too.
fn line(whole: &str, isps: &[&str]) -> Result<Option<(Line, Range<usize>)>, Wrong> {
    let text = whole.split('#').next().unwrap_or_default();
    let mut words = words(text);
    let Some((word, span)) = words.next() else {
        return Ok(None);
    };
    let prefix = prefix(word).map_err(|(message, help)| Wrong {
        span: span.clone(),
        message,
        help,
    })?;
    let mut line = Line {
        prefix,
        isp: None,
        place: Place::default(),
    };
    let mut given: Vec<&str> = Vec::new();
    for (word, at) in words {
        let Some((key, value)) = word.split_once('=') else {
            let message = format!("`{word}` is not KEY=VALUE");
            return Err(Wrong {
                help: Some("what is behind a # is a comment".into()),
                ..Wrong::new(at, message)
            });
        };
        if given.contains(&key) {
            return Err(Wrong::new(at, format!("`{key}` is there twice")));
        }
        given.push(key);
        set(&mut line, key, value, isps).map_err(|(message, help)| Wrong {
            span: at,
            message,
            help,
        })?;
    }
    Ok(Some((line, span)))
}

type Said = (String, Option<String>);

fn set(line: &mut Line, key: &str, value: &str, isps: &[&str]) -> Result<(), Said> {
    let plain = |message: String| (message, None);
    match key {
        "isp" => {
            let found = isps.iter().position(|isp| *isp == value);
            line.isp = Some(found.ok_or_else(|| {
                let help = suggestion(value, isps.iter().copied());
                (format!("unknown isp `{value}`"), help)
            })?);
        }
        "country" => line.place.country = Some(countries::country(value).map_err(plain)?),
        "continent" => line.place.continent = Some(countries::continent(value).map_err(plain)?),
        "location" => {
            let point = value
                .split_once(',')
                .and_then(|(lat, lon)| Location::from_degrees(lat.parse().ok()?, lon.parse().ok()?));
            line.place.location = Some(point.ok_or_else(|| {
                plain(format!(
                    "`{value}` is not LATITUDE,LONGITUDE in degrees, such as 37.57,126.98"
                ))
            })?);
        }
        _ => {
            let help = suggestion(key, KEYS).unwrap_or_else(|| format!("keys are {}", KEYS.join(", ")));
            return Err((format!("unknown key `{key}`"), Some(help)));
        }
    }
    Ok(())
}

/// A prefix, or an address by itself.
fn prefix(word: &str) -> Result<IpNet, Said> {
    let net = match word.parse::<IpAddr>() {
        Ok(address) => Some(IpNet::from(address)),
        Err(_) => word.parse::<IpNet>().ok(),
    };
    match net {
        Some(net) if net == net.trunc() => Ok(net),
        Some(net) => {
            let help = format!("did you mean `{}`?", net.trunc());
            Err((format!("`{word}` has bits set beyond its length"), Some(help)))
        }
        None => Err((format!("`{word}` is not a prefix such as 192.0.2.0/24"), None)),
    }
}

/// Words between blanks, with their place.
fn words(text: &str) -> impl Iterator<Item = (&str, Range<usize>)> {
    text.split_ascii_whitespace().map(|word| {
        let start = word.as_ptr() as usize - text.as_ptr() as usize;
        (word, start..start + word.len())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::chain::facts::{Continent, Country};

    fn of(text: &str) -> Result<Vec<Line>, String> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("list");
        std::fs::write(&path, text).unwrap();
        read(&path, &["KT", "SKB"], &mut Sha256::new()).map_err(|found| {
            let one = |d: &Diagnostic| {
                let help = d.help.clone().unwrap_or_default();
                format!("{}:{}: {} ({help})", d.line, d.column, d.message)
            };
            found.iter().map(one).collect::<Vec<_>>().join("\n")
        })
    }

    #[test]
    fn lines_and_what_they_say() {
        let text = "# head\n\n192.0.2.0/24\n 198.51.100.0/24\tcountry=kr isp=KT # why\r\n\
                    2001:db8::/32 continent=EU location=52.4,-4.9\n203.0.113.7";
        let line = |prefix: &str, isp, place| Line {
            prefix: prefix.parse().unwrap(),
            isp,
            place,
        };
        assert_eq!(
            of(text).unwrap(),
            [
                line("192.0.2.0/24", None, Place::default()),
                line(
                    "198.51.100.0/24",
                    Some(0),
                    Place {
                        country: Some(Country(*b"KR")),
                        ..Place::default()
                    }
                ),
                line(
                    "2001:db8::/32",
                    None,
                    Place {
                        continent: Some(Continent::Europe),
                        location: Some(Location {
                            latitude: 524_000,
                            longitude: -49_000
                        }),
                        ..Place::default()
                    }
                ),
                line("203.0.113.7/32", None, Place::default()),
            ]
        );
        assert_eq!(of("").unwrap(), []);
    }

    #[test]
    fn what_is_wrong_is_told_with_line_and_column() {
        for (text, told) in [
            (
                "192.0.2.0/24\n192.0.2.0/33\n",
                "2:1: `192.0.2.0/33` is not a prefix",
            ),
            (
                "192.0.2.1/24\n",
                "1:1: `192.0.2.1/24` has bits set beyond its length (did you mean `192.0.2.0/24`?)",
            ),
            (
                "192.0.2.0/24 isp=KTT\n",
                "1:14: unknown isp `KTT` (did you mean `KT`?)",
            ),
            (
                "192.0.2.0/24 contry=KR\n",
                "1:14: unknown key `contry` (did you mean `country`?)",
            ),
            ("192.0.2.0/24 country=KOR\n", "1:14: `KOR` is not a country"),
            (
                "192.0.2.0/24 location=91,0\n",
                "1:14: `91,0` is not LATITUDE,LONGITUDE",
            ),
            (
                "192.0.2.0/24 location=NaN,0\n",
                "1:14: `NaN,0` is not LATITUDE,LONGITUDE",
            ),
            (
                "192.0.2.0/24 the office\n",
                "1:14: `the` is not KEY=VALUE (what is behind a # is a comment)",
            ),
            ("192.0.2.0/24 isp=KT isp=KT\n", "1:21: `isp` is there twice"),
            (
                "192.0.2.0/24\n\n192.0.2.0/24\n",
                "3:1: prefix 192.0.2.0/24 is there twice, first in line 1",
            ),
        ] {
            let found = of(text).unwrap_err();
            assert!(found.starts_with(told), "{text:?}: {found}");
        }
        // All are told, up to a bound.
        let many = of(&"x\n".repeat(30)).unwrap_err();
        assert_eq!(many.lines().count(), 21);
        assert!(many.ends_with("0:0: and 10 more lines are wrong ()"), "{many}");
    }
}
