//! Which addresses a name may be answered with, from a file: `name address...` a line.

use crate::dns::names::{Query, wire};
use std::collections::HashMap;
use std::net::IpAddr;
use std::path::Path;

const TYPE_A: u16 = 1;
const TYPE_AAAA: u16 = 28;

/// The allowed addresses of each template.
#[derive(Debug)]
pub struct Expect {
    /// By template: where its addresses begin and end in `addresses`; `None` when it is not judged.
    ranges: Vec<Option<(u32, u32)>>,
    addresses: Vec<IpAddr>,
}

impl Expect {
    /// Reads the file for these queries, in the order of their templates.
    pub fn from_file(path: &Path, queries: &[Query]) -> Result<Self, String> {
        let text = std::fs::read_to_string(path).map_err(|e| format!("{}: {e}", path.display()))?;
        Self::parse(&text, queries).map_err(|e| format!("{}:{e}", path.display()))
    }

    fn parse(text: &str, queries: &[Query]) -> Result<Self, String> {
        let mut allowed: HashMap<Vec<u8>, Vec<IpAddr>> = HashMap::new();
        for (line, content) in text.lines().enumerate().map(|(n, l)| (n + 1, l.trim())) {
            if content.is_empty() || content.starts_with([';', '#']) {
                continue;
            }
            let mut words = content.split_ascii_whitespace();
            let name = wire(words.next().unwrap_or_default()).map_err(|e| format!("{line}: {e}"))?;
            let list = allowed.entry(name.to_ascii_lowercase()).or_default();
            for word in words {
                list.push(
                    word.parse()
                        .map_err(|_| format!("{line}: '{word}' is not an address"))?,
                );
            }
        }
        let mut out = Self {
            ranges: Vec::with_capacity(queries.len()),
            addresses: Vec::new(),
        };
        for query in queries {
            let list = allowed.get(&query.name.to_ascii_lowercase());
            let judged = list.filter(|_| matches!(query.rtype, TYPE_A | TYPE_AAAA));
            let range = judged.map(|list| {
                let from = out.addresses.len() as u32;
                out.addresses
                    .extend(list.iter().filter(|a| a.is_ipv4() == (query.rtype == TYPE_A)));
                (from, out.addresses.len() as u32)
            });
            out.ranges.push(range);
        }
        if out.ranges.iter().all(Option::is_none) {
            return Err(" none of its names is asked for A or AAAA".into());
        }
        Ok(out)
    }

    /// Whether `given` is allowed for the template: nothing but allowed addresses, and at least one if any is.
    #[inline]
    pub fn allows(&self, template: u32, given: &[IpAddr]) -> bool {
        let Some(Some((from, to))) = self.ranges.get(template as usize) else {
            return true;
        };
        let allowed = self
            .addresses
            .get(*from as usize..*to as usize)
            .unwrap_or_default();
        given.iter().all(|a| allowed.contains(a)) && given.is_empty() == allowed.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn judged_by_name_and_family() {
        let query = |name: &str, rtype| Query {
            name: wire(name).unwrap(),
            rtype,
        };
        let queries = [
            query("A.example", 1),
            query("a.example", 28),
            query("b.example", 1),
            query("a.example", 16),
        ];
        let expect = Expect::parse("# x\na.EXAMPLE 192.0.2.1 192.0.2.2\n", &queries).unwrap();
        let [one, two, three]: [IpAddr; 3] =
            ["192.0.2.1", "192.0.2.2", "192.0.2.3"].map(|a| a.parse().unwrap());
        assert!(expect.allows(0, &[one]) && expect.allows(0, &[two, one]));
        assert!(!expect.allows(0, &[one, three]) && !expect.allows(0, &[]));
        assert!(expect.allows(1, &[]) && !expect.allows(1, &["2001:db8::1".parse().unwrap()]));
        assert!(expect.allows(2, &[three]) && expect.allows(3, &[three]));
        assert!(
            Expect::parse("a.example nope", &queries)
                .unwrap_err()
                .starts_with("1: 'nope'")
        );
        assert!(Expect::parse("c.example 192.0.2.1", &queries).is_err());
    }
}
