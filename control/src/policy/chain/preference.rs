//! `preference`: sites with the highest preference stay; 0 takes a site out.
//!
//! A site has one, a service may have another for it, and `prefer` binds one to clients: "this source always to that
//! site". Of several entries that fit a client, the most specific decides for its site.

use super::{Ask, Candidate, ClientClass, Country, Sites};

/// A preference for some clients, at one site.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Bound {
    /// Clients of this ISP: index in the configuration's ISPs.
    pub isp: Option<usize>,
    /// Clients of this country.
    pub country: Option<Country>,
    /// Clients of these prefixes: index in the configuration's `[[clients]]`.
    pub named: Option<u32>,
    /// What it is for them, 0 to 255; `None`: above all others, the more the more specific the entry is.
    pub preference: Option<u8>,
}

/// Above what a number in the configuration can say.
const BOUND: u32 = 256;

impl Bound {
    /// How narrowly it fits: prefixes before an ISP in a country, before an ISP, before a country; of several prefixes
    /// the narrowest. `None`: it does not fit.
    fn fits(&self, client: &ClientClass) -> Option<u32> {
        let isp = self.isp.is_none_or(|isp| client.isp == Some(isp));
        let country = self.country.is_none_or(|country| client.country == Some(country));
        if !isp || !country {
            return None;
        }
        let others = u32::from(self.country.is_some()) + 2 * u32::from(self.isp.is_some());
        let Some(named) = self.named else {
            return Some(others);
        };
        // The narrowest stands first.
        let place = client.named.iter().position(|n| *n == named)?;
        Some(others + 4 * u32::try_from(client.named.len() - place).ok()?)
    }
}

impl Candidate {
    /// What it is for a client: 0 takes it out, 256 and more are those of `prefer` without a number.
    pub fn preference_for(&self, client: &ClientClass) -> u32 {
        let fitting = self.bound.iter().filter_map(|b| Some((b.fits(client)?, b)));
        // Of equals the first.
        let best = fitting.reduce(|best, next| if next.0 > best.0 { next } else { best });
        match best {
            Some((
                _,
                Bound {
                    preference: Some(p), ..
                },
            )) => u32::from(*p),
            Some((narrow, _)) => BOUND + narrow,
            None => u32::from(self.preference),
        }
    }
}

/// What stays of `left`.
pub(super) fn keep(ask: &Ask<'_>, left: Sites) -> Sites {
    let of = |i: u8| ask.site(i).preference_for(ask.client);
    let best = left.iter().map(of).max();
    left.filter(|i| Some(of(i)) == best)
}
