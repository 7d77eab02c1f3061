//! Server cookies (RFC 7873, RFC 9018): makes them and judges them. No clock of its own: the caller gives the time.
//!
//! Called by `stages::dns_answer` for queries with a COOKIE option, and by control, which reads the secrets.
//! A server cookie is version 1, three reserved bytes, a timestamp and SipHash-2-4 over the client cookie,
//! what stands before the hash, and the client's address (RFC 9018 section 4), so that several appliances with
//! one secret know each other's cookies and none keeps state of its clients.

use std::fmt;

/// Length of a client cookie, bytes.
pub const CLIENT_LEN: usize = 8;
/// Length of a COOKIE option with a server cookie of version 1, bytes.
pub const COOKIE_LEN: usize = 24;
/// Oldest cookie that is accepted, seconds (RFC 9018 section 4.3).
pub const AGE_MAX: i32 = 3600;
/// How far in the future a cookie's time may lie, seconds: the clocks of several appliances differ.
pub const AHEAD_MAX: i32 = 300;
/// A cookie older than this is good, and renewed, seconds.
pub const RENEW_AFTER: i32 = 1800;

/// Version 1, reserved bytes zero, as the upper half of a big-endian word.
const VERSION_1: u64 = 1 << 56;

/// A server secret, 128 bits. Never shown.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Secret {
    k0: u64,
    k1: u64,
}

impl Secret {
    /// From 16 bytes in the order in which secrets are written down.
    pub const fn new(bytes: [u8; 16]) -> Self {
        let key = u128::from_le_bytes(bytes);
        Self {
            k0: key as u64,
            k1: (key >> 64) as u64,
        }
    }
}

// By hand, so that no log or message can hold it.
impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(not shown)")
    }
}

/// The secrets of an appliance: one that cookies are made with, and one more that is accepted, for the time of a
/// rollover (RFC 9018 section 5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Secrets {
    /// What cookies are made with.
    pub current: Secret,
    /// What is accepted beside it: the one before, or the one to come.
    pub other: Option<Secret>,
}

/// The address that a cookie is bound to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Address {
    /// IPv4.
    V4([u8; 4]),
    /// IPv6.
    V6([u8; 16]),
}

/// What a cookie shows of its client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Judged {
    /// It was at its address when we gave it this cookie; the cookie is returned as it is.
    Good,
    /// The same, and it is to get a new one.
    Renew,
    /// Nothing: no version 1 cookie of ours for this address, or out of its time.
    Bad,
}

impl Secrets {
    /// Judges the 24 bytes of a COOKIE option that came from `address` at `now`, Unix time in seconds.
    /// Timestamps are serial numbers (RFC 1982), good beyond the year 2106.
    #[inline(always)]
    pub fn judge(&self, cookie: &[u8; COOKIE_LEN], address: Address, now: u32) -> Judged {
        let ([client, server, hash], _) = cookie.as_chunks::<8>() else {
            return Judged::Bad;
        };
        let head = u64::from_be_bytes(*server);
        let age = now.wrapping_sub(head as u32).cast_signed();
        if head >> 56 != 1 || !(-AHEAD_MAX..=AGE_MAX).contains(&age) {
            return Judged::Bad;
        }
        let (client, head_le) = (u64::from_le_bytes(*client), u64::from_le_bytes(*server));
        let hash = u64::from_le_bytes(*hash);
        // One comparison of whole words takes the same time wherever they differ.
        if hash == sip(self.current, client, head_le, address) {
            // What has reserved bits set was not made by this specification's rules (RFC 9018 section 4.2).
            return match age > RENEW_AFTER || head >> 32 != VERSION_1 >> 32 {
                false => Judged::Good,
                true => Judged::Renew,
            };
        }
        self.judge_by_other(client, head_le, hash, address)
    }

    #[cold]
    #[inline(never)]
    fn judge_by_other(&self, client: u64, head: u64, hash: u64, address: Address) -> Judged {
        match self.other {
            Some(other) if hash == sip(other, client, head, address) => Judged::Renew,
            _ => Judged::Bad,
        }
    }

    /// The whole option data, client cookie first, for a client at `address` at `now`, Unix time in seconds.
    #[inline]
    pub fn make(&self, client: [u8; CLIENT_LEN], address: Address, now: u32) -> [u8; COOKIE_LEN] {
        let head = (VERSION_1 | u64::from(now)).to_be_bytes();
        let (c, h) = (u64::from_le_bytes(client), u64::from_le_bytes(head));
        let hash = sip(self.current, c, h, address).to_le_bytes();
        let mut cookie = [0; COOKIE_LEN];
        if let ([to_client, to_head, to_hash], _) = cookie.as_chunks_mut::<8>() {
            (*to_client, *to_head, *to_hash) = (client, head, hash);
        }
        cookie
    }
}

/// The hash of a server cookie; words are little-endian, as SipHash reads its input.
#[inline(always)]
fn sip(secret: Secret, client: u64, head: u64, address: Address) -> u64 {
    let state = Sip::new(secret).word(client).word(head);
    match address {
        // 20 bytes: the last word holds the address and the length.
        Address::V4(a) => state.word(u64::from(u32::from_le_bytes(a)) | 20 << 56).finish(),
        Address::V6(a) => {
            let a = u128::from_le_bytes(a);
            state
                .word(a as u64)
                .word((a >> 64) as u64)
                .word(32 << 56)
                .finish()
        }
    }
}

/// SipHash-2-4 (Aumasson and Bernstein, 2012) over whole words.
#[derive(Clone, Copy)]
struct Sip([u64; 4]);

impl Sip {
    #[inline(always)]
    fn new(key: Secret) -> Self {
        // "somepseudorandomlygeneratedbytes".
        Self([
            key.k0 ^ 0x736f_6d65_7073_6575,
            key.k1 ^ 0x646f_7261_6e64_6f6d,
            key.k0 ^ 0x6c79_6765_6e65_7261,
            key.k1 ^ 0x7465_6462_7974_6573,
        ])
    }

    #[inline(always)]
    fn round(self) -> Self {
        let [mut a, mut b, mut c, mut d] = self.0;
        a = a.wrapping_add(b);
        c = c.wrapping_add(d);
        b = b.rotate_left(13) ^ a;
        d = d.rotate_left(16) ^ c;
        a = a.rotate_left(32);
        c = c.wrapping_add(b);
        a = a.wrapping_add(d);
        b = b.rotate_left(17) ^ c;
        d = d.rotate_left(21) ^ a;
        c = c.rotate_left(32);
        Self([a, b, c, d])
    }

    #[inline(always)]
    fn word(self, m: u64) -> Self {
        let [a, b, c, d] = self.0;
        let [a, b, c, d] = Self([a, b, c, d ^ m]).round().round().0;
        Self([a ^ m, b, c, d])
    }

    #[inline(always)]
    fn finish(self) -> u64 {
        let [a, b, c, d] = self.0;
        let [a, b, c, d] = Self([a, b, c ^ 0xff, d]).round().round().round().round().0;
        a ^ b ^ c ^ d
    }
}

#[cfg(test)]
mod tests;
