//! `preference`: sites with the highest preference stay; 0 takes a site out.
//!
//! A site has one, a service may have another for it, and `prefer` binds one to clients: "this source always to that
//! site". Of several entries that fit a client, the most specific decides for its site.

use super::tell::{Finding, Says};
use super::{Ask, Candidate, ClientClass, Country, Sites};
use crate::config::model::Config;

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

    /// Whom it is for, in words.
    fn clients(&self, config: &Config) -> String {
        let named = self.named.and_then(|n| config.clients.get(n as usize));
        let isp = self.isp.and_then(|isp| config.isps.get(isp));
        let parts = [
            named.map(|named| named.name.clone()),
            isp.map(|isp| isp.name.clone()),
            self.country.map(|country| country.to_string()),
        ];
        parts.into_iter().flatten().collect::<Vec<_>>().join(" in ")
    }
}

impl Candidate {
    /// The entry of `prefer` that decides for a client, if any fits: the narrowest, of equals the first.
    fn binding(&self, client: &ClientClass) -> Option<(u32, &Bound)> {
        let fitting = self.bound.iter().filter_map(|b| Some((b.fits(client)?, b)));
        fitting.reduce(|best, next| if next.0 > best.0 { next } else { best })
    }

    /// What it is for a client: 0 takes it out, 256 and more are those of `prefer` without a number.
    pub fn preference_for(&self, client: &ClientClass) -> u32 {
        match self.binding(client) {
            Some((narrow, bound)) => bound.preference.map_or(BOUND + narrow, u32::from),
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

/// In words; those that are out are told as well.
pub(super) fn says(ask: &Ask<'_>, config: &Config, left: Sites) -> Says {
    let of = |i: u8| ask.site(i).preference_for(ask.client);
    let best = left.iter().map(of).max().unwrap_or(0);
    let text = match best {
        BOUND.. => "a preference for these clients".to_owned(),
        _ => format!("highest preference {best}"),
    };
    let all = Sites::first(ask.all.len());
    let told = all.filter(|i| left.has(i) || of(i) == 0);
    let finding = |i: u8| {
        let value = match (ask.site(i).binding(ask.client), of(i)) {
            (Some((_, bound)), BOUND..) => format!("first for {}", bound.clients(config)),
            (Some((_, bound)), preference) => format!("{preference} for {}", bound.clients(config)),
            (None, preference) => preference.to_string(),
        };
        Finding::new(i, value).why(if of(i) == 0 { "0 takes it out" } else { "" })
    };
    (text, told.iter().map(finding).collect())
}
