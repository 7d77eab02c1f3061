//! `isp`: sites in the client's ISP stay.
//!
//! A client of no known ISP, or of one with no site: nothing is dropped. A site in no ISP is in no client's.

use super::tell::{Finding, Says};
use super::{Ask, Sites};
use crate::config::model::Config;

/// What stays of `left`.
pub(super) fn keep(ask: &Ask<'_>, left: Sites) -> Sites {
    match ask.client.isp {
        Some(isp) => left.filter(|i| ask.site(i).isp == Some(isp)),
        None => left,
    }
}

/// In words.
pub(super) fn says(ask: &Ask<'_>, config: &Config, left: Sites) -> Says {
    let name = |isp: Option<usize>| Some(config.isps.get(isp?)?.name.as_str());
    let text = match name(ask.client.isp) {
        None => "the client's ISP is not known: nothing dropped".to_owned(),
        Some(isp) if keep(ask, left).is_empty() => format!("no site in the client's ISP {isp}"),
        Some(isp) => format!("sites in the client's ISP {isp} stay"),
    };
    let of = |i: u8| match name(ask.site(i).isp) {
        Some(isp) => format!("in {isp}"),
        None => "in no ISP".to_owned(),
    };
    (text, left.iter().map(|i| Finding::new(i, of(i))).collect())
}
