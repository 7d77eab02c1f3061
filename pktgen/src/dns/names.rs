//! What is asked: names from a file (the format of dnsperf: a name and a type a line) or from a
//! pattern, with types drawn from a mix. All of it happens before the start.

use domain::base::iana::Rtype;
use domain::base::{Name, ToName};
use std::path::Path;

/// One name with one type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Query {
    /// The name, uncompressed wire form.
    pub name: Vec<u8>,
    /// The record type.
    pub rtype: u16,
}

/// The queries of a run, as groups of one name each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Queries {
    /// Group after group.
    pub queries: Vec<Query>,
    /// How types are drawn within a group.
    pub mix: Mix,
}

/// Types with weights: how often each is asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mix {
    types: Vec<(u16, u32)>,
    total: u32,
}

/// Most types in a mix: each has a template per name.
const TYPES_MAX: usize = 16;
/// Most names of a pattern.
const NAMES_MAX: u64 = 10_000_000;

impl std::str::FromStr for Mix {
    type Err = String;

    /// `A:3,AAAA:1`, or types alone, which then have weight 1.
    fn from_str(text: &str) -> Result<Self, String> {
        let mut types = Vec::new();
        for part in text.split(',') {
            let (name, weight) = part.split_once(':').unwrap_or((part, "1"));
            let weight: u32 = weight
                .trim()
                .parse()
                .ok()
                .filter(|w| (1..=10_000).contains(w))
                .ok_or_else(|| {
                    format!(
                        "'{weight}' is not a weight; give a whole number from 1 to 10000, as in A:3,AAAA:1"
                    )
                })?;
            types.push((rtype(name.trim())?, weight));
        }
        if types.len() > TYPES_MAX {
            return Err(format!("{} types; at most {TYPES_MAX}", types.len()));
        }
        let total = types.iter().map(|t| t.1).sum();
        Ok(Self { types, total })
    }
}

impl Mix {
    /// The mix of one: for queries that have their types already.
    fn single() -> Self {
        Self {
            types: vec![(0, 1)],
            total: 1,
        }
    }

    /// Templates per name.
    #[inline]
    pub fn stride(&self) -> u32 {
        self.types.len() as u32
    }

    /// Which of the group's templates, for 32 random bits.
    #[inline]
    pub fn draw(&self, random: u32) -> u32 {
        if self.types.len() == 1 {
            return 0;
        }
        let mut point = ((u64::from(random) * u64::from(self.total)) >> 32) as u32;
        let mut index = 0;
        for &(_, weight) in &self.types {
            if point < weight {
                break;
            }
            point -= weight;
            index += 1;
        }
        index
    }

    fn expand(self, names: impl Iterator<Item = Vec<u8>>) -> Queries {
        let types = &self.types;
        let queries = names
            .flat_map(|name| {
                types.iter().map(move |&(rtype, _)| Query {
                    name: name.clone(),
                    rtype,
                })
            })
            .collect();
        Queries { queries, mix: self }
    }
}

/// The wire form of a name in presentation format, with escapes.
pub fn wire(name: &str) -> Result<Vec<u8>, String> {
    let name: Name<Vec<u8>> = name
        .parse()
        .map_err(|e| format!("'{name}' is not a domain name: {e}"))?;
    Ok(name.to_vec().as_slice().to_vec())
}

/// A record type by its name, or as TYPE123.
pub fn rtype(text: &str) -> Result<u16, String> {
    let rtype: Rtype = text
        .to_ascii_uppercase()
        .parse()
        .map_err(|_| format!("'{text}' is not a record type; use names such as A, AAAA, HTTPS or TYPE65"))?;
    Ok(rtype.to_int())
}

/// Names from a file. Lines are `name type`, or all of them `name` alone: then types come from `mix`.
/// Empty lines and lines that begin with `;` or `#` are skipped.
pub fn from_file(path: &Path, mix: Option<Mix>) -> Result<Queries, String> {
    let text = std::fs::read_to_string(path).map_err(|e| format!("{}: {e}", path.display()))?;
    parse_file(&text, mix).map_err(|e| format!("{}:{e}", path.display()))
}

fn parse_file(text: &str, mix: Option<Mix>) -> Result<Queries, String> {
    let mut typed = Vec::new();
    let mut names = Vec::new();
    for (line, content) in text.lines().enumerate().map(|(n, l)| (n + 1, l.trim())) {
        if content.is_empty() || content.starts_with([';', '#']) {
            continue;
        }
        let mut words = content.split_ascii_whitespace();
        let name = words.next().unwrap_or_default();
        let name = wire(name).map_err(|e| format!("{line}: {e}"))?;
        match (words.next(), words.next()) {
            (Some(word), None) => {
                typed.push(Query {
                    name,
                    rtype: rtype(word).map_err(|e| format!("{line}: {e}"))?,
                });
            }
            (None, None) => names.push(name),
            _ => return Err(format!("{line}: '{content}': expected 'name type'")),
        }
        if !typed.is_empty() && !names.is_empty() {
            return Err(format!(
                "{line}: some lines have a type and some have not; give all of them one, or none"
            ));
        }
    }
    match (typed.is_empty(), names.is_empty(), mix) {
        (true, true, _) => Err(" no names in the file; it needs lines 'name type'".into()),
        (false, _, None) => Ok(Queries {
            queries: typed,
            mix: Mix::single(),
        }),
        (false, _, Some(_)) => Err(" the lines have types, so --types has no meaning; leave it out".into()),
        (true, _, Some(mix)) => Ok(mix.expand(names.into_iter())),
        (true, _, None) => Err(" the lines have no types; add them, or give --types".into()),
    }
}

/// Names from a pattern: `{0-999}` stands for the numbers from 0 to 999 (`{000-999}` with leading
/// zeros); several ranges give all combinations, the last running fastest.
pub fn from_pattern(pattern: &str, mix: Mix) -> Result<Queries, String> {
    let parts = parse_pattern(pattern)?;
    let count = parts.iter().try_fold(1u64, |n, part| n.checked_mul(part.count()));
    let count = count
        .filter(|&n| n <= NAMES_MAX)
        .ok_or_else(|| format!("'{pattern}' has more than {NAMES_MAX} names"))?;
    let names: Result<Vec<_>, _> = (0..count).map(|n| wire(&expand(&parts, n))).collect();
    Ok(mix.expand(names?.into_iter()))
}

enum Part<'a> {
    Text(&'a str),
    Range { low: u64, high: u64, width: usize },
}

impl Part<'_> {
    fn count(&self) -> u64 {
        match self {
            Part::Text(_) => 1,
            Part::Range { low, high, .. } => (high - low).saturating_add(1),
        }
    }
}

fn parse_pattern(pattern: &str) -> Result<Vec<Part<'_>>, String> {
    let mut parts = Vec::new();
    let mut rest = pattern;
    while let Some(open) = rest.find('{') {
        let (text, tail) = rest.split_at(open);
        parts.push(Part::Text(text));
        let bad = || format!("'{tail}': expected a range such as {{0-999}}");
        let (range, after) = tail[1..].split_once('}').ok_or_else(bad)?;
        let (low_text, high_text) = range.split_once('-').ok_or_else(bad)?;
        let parse = |s: &str| s.parse::<u64>().map_err(|_| bad());
        let (low, high) = (parse(low_text)?, parse(high_text)?);
        if low > high {
            return Err(format!("'{{{range}}}': the range ends before it begins"));
        }
        let width = if low_text.starts_with('0') && low_text.len() > 1 {
            low_text.len()
        } else {
            0
        };
        parts.push(Part::Range { low, high, width });
        rest = after;
    }
    parts.push(Part::Text(rest));
    Ok(parts)
}

fn expand(parts: &[Part<'_>], mut n: u64) -> String {
    let mut pieces = Vec::with_capacity(parts.len());
    for part in parts.iter().rev() {
        pieces.push(match part {
            Part::Text(text) => (*text).to_owned(),
            Part::Range { low, width, .. } => format!("{:0width$}", low + n % part.count(), width = *width),
        });
        n /= part.count();
    }
    pieces.reverse();
    pieces.concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(queries: &Queries) -> Vec<String> {
        let show = |q: &Query| {
            let name = Name::from_octets(q.name.clone()).unwrap();
            format!("{name} {}", Rtype::from_int(q.rtype))
        };
        queries.queries.iter().map(show).collect()
    }

    #[test]
    fn patterns() {
        let mix: Mix = "A".parse().unwrap();
        let queries = from_pattern("h{8-10}.r{01-02}.example.", mix.clone()).unwrap();
        assert_eq!(
            shown(&queries),
            [
                "h8.r01.example A",
                "h8.r02.example A",
                "h9.r01.example A",
                "h9.r02.example A",
                "h10.r01.example A",
                "h10.r02.example A"
            ]
        );
        assert_eq!(
            shown(&from_pattern("x.example", mix.clone()).unwrap()),
            ["x.example A"]
        );
        for bad in [
            "h{9-1}.e",
            "h{1.e",
            "h{a-b}.e",
            "h{5}.e",
            "h{0-99999999999}.e",
            "a..b",
            "{0-99999999}{0-9}.e",
        ] {
            assert!(from_pattern(bad, mix.clone()).is_err(), "{bad}");
        }
    }

    #[test]
    fn files() {
        let typed = parse_file(
            "; comment\nwww.example.com A\n\n# x\nmail\\.x.example. TYPE65\r\n",
            None,
        )
        .unwrap();
        assert_eq!(shown(&typed), ["www.example.com A", "mail\\.x.example HTTPS"]);
        assert_eq!(typed.mix.stride(), 1);
        let mix: Mix = "A:3,aaaa".parse().unwrap();
        let untyped = parse_file("a.example\nb.example\n", Some(mix.clone())).unwrap();
        assert_eq!(
            shown(&untyped),
            ["a.example A", "a.example AAAA", "b.example A", "b.example AAAA"]
        );
        for (bad, mix, line) in [
            ("", None, " no names"),
            ("a.example A\nb.example", None, "2: some lines"),
            ("a.example A B", None, "1: 'a.example A B'"),
            ("a.example NOPE", None, "1: 'NOPE'"),
            ("a..example A", None, "1: 'a..example'"),
            ("a.example", None, " the lines have no types"),
            ("a.example A", Some(mix), " the lines have types"),
        ] {
            let error = parse_file(bad, mix).unwrap_err();
            assert!(error.starts_with(line), "{bad}: {error}");
        }
    }

    #[test]
    fn mixes() {
        let mix: Mix = "A:3,AAAA:1".parse().unwrap();
        let drawn: Vec<_> = (0..8).map(|n| mix.draw((n << 29) + 1)).collect();
        assert_eq!(drawn, [0, 0, 0, 0, 0, 0, 1, 1]);
        assert_eq!(mix.draw(u32::MAX), 1);
        for bad in ["", "A:0", "A:x", "NOPE", "A:3,,B"] {
            assert!(bad.parse::<Mix>().is_err(), "{bad}");
        }
    }
}
