//! Follows a CNAME through the served zones, over further CNAMEs and DNAMEs, and writes what it passes.
//! Called by `encode` for each name that has a CNAME.

use super::world::{Place, World};
use super::{lowered, put_record, put_set};
use crate::config::model::Rrset;
use anyhow::Result;
use dataplane::stages::dns_answer::CNAMES_MAX;
use dataplane::tables::answers::{BlobBuilder, Section};
use dataplane::wire::dns::{self, rtype};

/// Where a chain ends.
pub(super) enum End<'w, 'a> {
    /// At a name where it was before, or after as many CNAMEs as are followed: whoever resolves goes on.
    Stops,
    /// A DNAME would make a name of over 255 octets (RFC 6672 section 3.2).
    TooLong,
    /// Here.
    At(Place<'w, 'a>),
}

/// The records of a chain.
#[derive(Clone)]
pub(super) struct Chain {
    pub(super) blob: BlobBuilder,
    /// The last CNAME's target, which the end is about.
    pub(super) target: Vec<u8>,
    /// Where the target stands in the blob.
    pub(super) target_at: u16,
    cnames: usize,
    /// Owners of the DNAMEs on the way: each stands once in an answer, however often it is used.
    pub(super) dnames: Vec<Vec<u8>>,
}

impl Chain {
    /// The chain that begins with a name's own CNAME.
    pub(super) fn new(name: &[u8], cname: &Rrset) -> Result<Self> {
        let mut chain = Self {
            blob: BlobBuilder::new(name),
            target: name.to_vec(),
            target_at: 0,
            cnames: 0,
            dnames: Vec::new(),
        };
        chain.push(cname.ttl, cname.rdata.first().map_or(&[0], Vec::as_slice))?;
        Ok(chain)
    }

    /// Adds the CNAME of the last target.
    fn push(&mut self, ttl: u32, to: &[u8]) -> Result<()> {
        let at = self.blob.position();
        put_record(
            &mut self.blob,
            Section::Answer,
            &self.target,
            rtype::CNAME,
            ttl,
            to,
        )?;
        let record = self.blob.data().get(at as usize..).unwrap_or(&[]);
        let owner = dns::skip_name(record, 0).unwrap_or(2) as u16;
        self.target_at = at + owner + 10;
        self.target = to.to_vec();
        self.cnames += 1;
        Ok(())
    }

    /// Follows the chain that begins at `start`. With `ds` an apex is looked at from the zone above.
    pub(super) fn follow<'w, 'a>(
        &mut self,
        world: &'w World<'a>,
        start: &[u8],
        ds: bool,
    ) -> Result<End<'w, 'a>> {
        let mut seen = vec![start.to_vec()];
        loop {
            let key = lowered(&self.target);
            if seen.contains(&key) {
                return Ok(End::Stops);
            }
            let above = if ds { world.parent_side(&key) } else { None };
            let place = above.unwrap_or_else(|| world.place(&key));
            let full = self.cnames == CNAMES_MAX;
            match place {
                // The wildcard that the chain began with: the question may be this very name.
                Place::At(node, _) if node == start => return Ok(End::Stops),
                Place::At(_, owner) => match owner.set(rtype::CNAME) {
                    None => return Ok(End::At(place)),
                    Some(_) if full => return Ok(End::Stops),
                    Some(next) => self.push(next.ttl, next.rdata.first().map_or(&[0], Vec::as_slice))?,
                },
                Place::Dname(..) if full => return Ok(End::Stops),
                Place::Dname(owner, dname) => {
                    if !self.dnames.iter().any(|known| known == owner) {
                        put_set(&mut self.blob, Section::Answer, owner, dname)?;
                        self.dnames.push(owner.to_vec());
                    }
                    let to = dname.rdata.first().map_or(&[0][..], Vec::as_slice);
                    let kept = self.target.len() - owner.len();
                    let next = [self.target.get(..kept).unwrap_or(&[]), to].concat();
                    if next.len() > dns::NAME_MAX {
                        return Ok(End::TooLong);
                    }
                    self.push(dname.ttl, &next)?;
                }
                _ => return Ok(End::At(place)),
            }
            seen.push(key);
        }
    }
}
