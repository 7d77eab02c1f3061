//! `isp`: sites in the client's ISP stay.
//!
//! A client of no known ISP, or of one with no site: nothing is dropped. A site in no ISP is in no client's.

use super::{Ask, Sites};

/// What stays of `left`.
pub(super) fn keep(ask: &Ask<'_>, left: Sites) -> Sites {
    match ask.client.isp {
        Some(isp) => left.filter(|i| ask.site(i).isp == Some(isp)),
        None => left,
    }
}
