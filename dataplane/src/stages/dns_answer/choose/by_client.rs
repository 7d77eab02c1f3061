//! The client's address chooses: weighted rendezvous hashing (Thaler and Ravishankar 1998; weights as in Schindelhauer
//! and Schomaker 2005). Each candidate has a score that hangs on client and candidate alone, so a member that goes moves its own
//! clients and no others, one that comes takes its share evenly from all, and appliances agree without a word.

use super::super::Client;
use super::draw::members;
use super::{Asker, Candidates, Chosen};
use crate::tables::plans::{Family, Pool};

/// Takes the `pool.answers` candidates with the highest scores, highest first. As many steps as candidates for each.
pub(super) fn by_client(
    candidates: &mut [Candidates],
    pool: &Pool,
    family: Family<'_>,
    asker: &Asker,
    chosen: &mut Chosen,
) {
    while chosen.count < pool.answers as usize {
        let mut best: Option<(f64, usize, u32, u32)> = None;
        for (group, bit, member) in members(candidates) {
            let identity = family.identities.get(member as usize).copied().unwrap_or(0);
            let weight = match family.weights.get(member as usize) {
                _ if pool.flags & Pool::WEIGHTED == 0 => 1,
                weight => weight.copied().unwrap_or(0),
            };
            let score = score(asker.hash, identity, weight);
            if best.is_none_or(|(highest, ..)| score > highest) {
                best = Some((score, group, bit, member));
            }
        }
        let Some((_, group, bit, member)) = best else {
            return;
        };
        if let (Some(group), Some(slot)) = (candidates.get_mut(group), chosen.members.get_mut(chosen.count)) {
            group.mask &= !(1 << bit);
            *slot = member;
        }
        chosen.count += 1;
    }
}

/// What a client's address hashes to, by its first `v4` or `v6` bits.
pub(in super::super) fn client_hash(client: Client, v4: u8, v6: u8) -> u64 {
    // As many zeros as there are bits that do not matter; all of them for 0.
    let (address, bits) = match client {
        Client::V4(a) => (u128::from(u32::from_be_bytes(a)) << 96, v4.min(32)),
        Client::V6(a) => (u128::from_be_bytes(a), v6.min(128)),
    };
    let kept = address & !u128::MAX.checked_shr(u32::from(bits)).unwrap_or(0);
    mix(mix((kept >> 64) as u64 ^ u64::from(bits)) ^ kept as u64)
}

/// Score of a member for a client: -weight / ln(u), u uniform in (0, 1) by both. Weight 0 is below all others.
fn score(client: u64, member: u64, weight: u16) -> f64 {
    let hash = mix(client ^ mix(member));
    // 53 bits, the middle of its interval: neither 0 nor 1.
    let u = ((hash >> 11) as f64 + 0.5) / (1u64 << 53) as f64;
    match weight {
        0 => -1.0 / u,
        weight => f64::from(weight) / -u.ln(),
    }
}

/// A permutation in which each input bit changes about half of the output's (the finaliser of MurmurHash3).
fn mix(mut x: u64) -> u64 {
    x = (x ^ x >> 33).wrapping_mul(0xff51_afd7_ed55_8ccd);
    x = (x ^ x >> 33).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    x ^ x >> 33
}
