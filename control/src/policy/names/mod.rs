//! Zones to names: every owner name with its record sets pre-encoded, empty non-terminals, cuts, wildcards,
//! CNAME chains, DNAMEs and service names.
//!
//! Called by the compiler for a new configuration. All that an answer could look up is looked up here, once; only
//! what lies below a DNAME is left to the engine, since those names are not known. `world` sorts what the zones
//! say by name, `chain` follows CNAMEs, and `encode` writes the entries of each name.

mod chain;
mod encode;
mod world;

use crate::config::model::{Rrset, Zone};
use anyhow::{Context, Result};
use dataplane::tables::answers::{AnswersBuilder, BlobBuilder, Section};
use dataplane::tables::{self, Answers, Names};
use dataplane::wire::dns::rtype;
use std::collections::HashMap;

/// A service name.
#[derive(Clone, Copy, Debug)]
pub struct ServiceName {
    /// Service index.
    pub service: u32,
    /// Where its policy's cells are: see `Policy::place`.
    pub place: u32,
    /// Whether it has members that are names, so that CNAME records may be chosen.
    pub cnames: bool,
}

/// Services by lower-cased wire name.
pub type ServiceNames = HashMap<Vec<u8>, ServiceName>;

/// What names compile to.
pub struct Compiled {
    /// Owner names.
    pub names: Names,
    /// Their records, and the fixed answers that were handed in.
    pub answers: Answers,
    /// Zones, by index in the configuration.
    pub zones: Vec<tables::Zone>,
}

/// Compiles zones and service names. `answers` may hold blobs already.
///
/// # Errors
/// When a record set does not fit a message, or memory is out.
pub fn compile(
    zones: &[Zone],
    services: &ServiceNames,
    answers: AnswersBuilder,
    seed: [u64; 4],
) -> Result<Compiled> {
    encode::encode(&world::World::new(zones, services), answers, seed)
}

/// The name's parent in wire form; `None` for the root.
fn parent(name: &[u8]) -> Option<&[u8]> {
    match name.first() {
        Some(&len) if len > 0 => name.get(1 + len as usize..),
        _ => None,
    }
}

/// The name and its ancestors up to the root.
fn ancestors(name: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::successors(Some(name), |n| parent(n))
}

/// The name in lower case, by which names are equal (RFC 4343).
fn lowered(name: &[u8]) -> Vec<u8> {
    name.to_ascii_lowercase()
}

/// The wildcard directly below a name.
fn wildcard_of(name: &[u8]) -> Vec<u8> {
    [b"\x01*", name].concat()
}

fn put_set(blob: &mut BlobBuilder, section: Section, owner: &[u8], set: &Rrset) -> Result<()> {
    for rdata in &set.rdata {
        put_record(blob, section, owner, set.rtype, set.ttl, rdata)?;
    }
    Ok(())
}

fn put_record(
    blob: &mut BlobBuilder,
    section: Section,
    owner: &[u8],
    rtype: u16,
    ttl: u32,
    rdata: &[u8],
) -> Result<()> {
    if blob.record(section, owner, rtype, ttl, rdata).is_err() {
        anyhow::bail!("the records of type {rtype} do not fit one message of 65,535 bytes");
    }
    Ok(())
}

/// The zone's SOA in the authority section, its TTL lowered to MINIMUM (RFC 2308 sections 3 and 5).
fn put_negative(blob: &mut BlobBuilder, zone: &Zone) -> Result<()> {
    let apex = zone.apex.as_slice();
    let soa = zone
        .rrsets
        .iter()
        .find(|s| s.rtype == rtype::SOA && s.owner.as_slice().eq_ignore_ascii_case(apex))
        .with_context(|| format!("zone {} has no SOA", zone.apex))?;
    let rdata = soa.rdata.first().context("empty SOA")?;
    let minimum = rdata.last_chunk::<4>().map_or(0, |b| u32::from_be_bytes(*b));
    let ttl = soa.ttl.min(minimum);
    put_record(blob, Section::Authority, apex, rtype::SOA, ttl, rdata)
}
