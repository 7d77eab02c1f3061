//! Cookies of queries (RFC 7873 section 5.2): what a reply carries for one, and whether it was good.
//!
//! Called where the reply's OPT record is written, for the usual answers, and before a query is answered in every step,
//! for all others.

use super::parse::{Client, Located};
use crate::tables::{Cookies, Snapshot};
use crate::wire::cookie::{Address, CLIENT_LEN, COOKIE_LEN, Judged};
use crate::wire::edns::{self, Edns};

/// Length of a COOKIE option in a reply, bytes.
pub(super) const OPTION_LEN: usize = 4 + COOKIE_LEN;

impl Client {
    /// The address as cookies and rate limits know it.
    #[inline(always)]
    pub(super) fn address(self) -> Address {
        match self {
            Client::V4(address) => Address::V4(address),
            Client::V6(address) => Address::V6(address),
        }
    }
}

impl Located {
    /// Judges the query's cookie, if it has one and cookies are on, and puts the reply's in its place.
    /// `now`: Unix time, seconds.
    #[inline]
    pub(super) fn settle_cookie(&mut self, snapshot: &Snapshot, now: u32) {
        if self.edns.has(Edns::COOKIE)
            && !self.edns.has(Edns::SETTLED)
            && let Some(cookies) = &snapshot.limits.cookies
        {
            let (cookie, good) = settled(self, cookies, now);
            self.edns.cookie = cookie;
            self.edns.flags |= Edns::SETTLED | if good { Edns::GOOD_COOKIE } else { 0 };
        }
    }
}

/// What the reply carries for the query's cookie, and whether that was good.
#[inline(always)]
fn settled(q: &Located, cookies: &Cookies, now: u32) -> ([u8; COOKIE_LEN], bool) {
    let (edns, address) = (&q.edns, q.source().address());
    let whole = edns.cookie_len as usize == COOKIE_LEN;
    let judged = match whole {
        true => cookies.secrets.judge(&edns.cookie, address, now),
        false => Judged::Bad,
    };
    match judged {
        Judged::Good => (edns.cookie, true),
        other => (fresh(q, cookies, address, now), other == Judged::Renew),
    }
}

#[inline(never)]
fn fresh(q: &Located, cookies: &Cookies, address: Address, now: u32) -> [u8; COOKIE_LEN] {
    let client = q.edns.cookie.first_chunk::<CLIENT_LEN>();
    cookies
        .secrets
        .make(client.copied().unwrap_or_default(), address, now)
}

/// Appends the reply's COOKIE option at `at`, which has room; the offset behind it.
#[inline(always)]
pub(super) fn put(buffer: &mut [u8], at: usize, q: &Located, cookies: &Cookies, now: u32) -> usize {
    let cookie = match q.edns.has(Edns::SETTLED) {
        true => q.edns.cookie,
        false => settled(q, cookies, now).0,
    };
    if let Some(to) = buffer
        .get_mut(at..)
        .and_then(|b| b.first_chunk_mut::<OPTION_LEN>())
    {
        let (head, body) = to.split_at_mut(4);
        head.copy_from_slice(&[0, edns::option::COOKIE as u8, 0, COOKIE_LEN as u8]);
        body.copy_from_slice(&cookie);
    }
    at + OPTION_LEN
}
