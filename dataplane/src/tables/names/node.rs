//! A name of the table and its record sets, as an answer reads them. Built by [`super::NamesBuilder`].

use super::super::NONE;
use super::super::key::Block;
use crate::zeroable;

/// One record set of a node, or a way to make it. 16 bytes.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct Entry {
    /// RR type, then RCODE, then flags, from the lowest bits on: a plain one of a type is the type.
    kind: u32,
    /// Blob in `Answers`.
    pub blob: u32,
    /// With [`Entry::SERVICE`]: the service whose addresses are appended to the blob's answers.
    pub service: u32,
    /// With [`Entry::SERVICE`]: offset in the blob's data of the owner name of the appended records; of an empty blob
    /// they are the question's.
    pub owner: u16,
    pad: u16,
}

impl Entry {
    /// The type that stands for all others. 0 is reserved and never a type of a zone.
    pub const DEFAULT: u16 = 0;
    /// The answer is a referral: AA clear.
    pub const REFERRAL: u8 = 1;
    /// Addresses of a service follow the blob's answers.
    pub const SERVICE: u8 = 2;
    /// The blob is a DNAME record above the name: the answer goes on at the name that it makes.
    pub const DNAME: u8 = 4;
    /// With [`Entry::SERVICE`]: names are among the service's members, so a CNAME may follow.
    pub const CNAMES: u8 = 8;
    /// Stands for no type of a question, or is the first entry of a node that has none.
    pub(super) const OTHER: u8 = 16;
    /// Not a type but the answer when a service gives nothing; where there is none, that is [`Entry::DEFAULT`]. DS, whose
    /// chain may go another way, has it in a second entry of its own type instead. The number is reserved (RFC 6895 section 3.1).
    pub const NOTHING: u16 = u16::MAX;

    /// A static record set. Of a type of its own it has answers, of which the node's name is the owner.
    pub fn fixed(rtype: u16, rcode: u8, blob: u32) -> Self {
        let other = match rtype {
            Self::DEFAULT | Self::NOTHING => Self::OTHER,
            _ => 0,
        };
        Self {
            kind: rtype as u32 | (rcode as u32) << 16 | (other as u32) << 24,
            blob,
            service: NONE,
            ..Self::default()
        }
    }

    /// The same for another type.
    pub fn with_rtype(self, rtype: u16) -> Self {
        let flags = (self.kind >> 24) as u8 & !Self::OTHER;
        Self {
            kind: Self::fixed(rtype, self.rcode(), 0).with_flags(flags).kind,
            ..self
        }
    }

    /// The same with flags set.
    pub fn with_flags(self, flags: u8) -> Self {
        Self {
            kind: self.kind | (flags as u32) << 24,
            ..self
        }
    }

    /// The same with a service's addresses appended, owned by the name at `owner` in the blob's data.
    pub fn with_service(self, service: u32, owner: u16) -> Self {
        Self {
            service,
            owner,
            ..self.with_flags(Self::SERVICE)
        }
    }

    /// RR type; [`Entry::DEFAULT`] answers every type that has no entry of its own.
    #[inline(always)]
    pub fn rtype(&self) -> u16 {
        self.kind as u16
    }

    /// RCODE of the answer.
    #[inline(always)]
    pub fn rcode(&self) -> u8 {
        (self.kind >> 16) as u8
    }

    /// Whether one of `flags` is set: [`Entry::REFERRAL`], [`Entry::SERVICE`].
    #[inline(always)]
    pub fn has(&self, flags: u8) -> bool {
        self.kind & (flags as u32) << 24 != 0
    }
}

/// A name. 64 bytes, one cache line: the name's first 32 bytes and its first record set.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C, align(64))]
pub struct Node {
    pub(super) name: Block,
    /// Start of the blocks behind the first in the arena of long names.
    pub(super) long: u32,
    /// Index of the second record set.
    pub(super) entries: u32,
    /// Zone index; meaningless with [`Node::OUTSIDE`].
    pub zone: u32,
    pub(super) len: u8,
    pub(super) flags: u8,
    pub(super) count: u8,
    pub(super) pad: u8,
    pub(super) first: Entry,
}

zeroable!(Entry {
    kind,
    blob,
    service,
    owner,
    pad
});
zeroable!(Node {
    name,
    long,
    entries,
    zone,
    len,
    flags,
    count,
    pad,
    first
});

const _: () = assert!(size_of::<Entry>() == 16 && size_of::<Node>() == 64);

impl Node {
    /// An ancestor of an apex: not served.
    pub const OUTSIDE: u8 = 1;
    /// A zone cut (RFC 1034 section 4.2.1): names at and below it are referred.
    pub const CUT: u8 = 2;
    /// A wildcard stands directly below (RFC 4592).
    pub const WILDCARD: u8 = 4;
    /// A DNAME stands here: names below it are renamed (RFC 6672).
    pub const DNAME: u8 = 8;
    /// Any of these: what is below and not there is not simply denied.
    pub const NOT_PLAIN: u8 = Self::OUTSIDE | Self::CUT | Self::WILDCARD | Self::DNAME;

    /// Whether all of `flags` are set.
    #[inline]
    pub fn has(&self, flags: u8) -> bool {
        self.flags & flags == flags
    }

    /// Length of the name, bytes.
    #[inline]
    pub fn name_len(&self) -> usize {
        self.len as usize
    }

    /// The record set of `rtype`, if it is the node's first and static, with NOERROR: the usual case.
    #[inline(always)]
    pub fn plain(&self, rtype: u16) -> Option<&Entry> {
        (self.first.kind == rtype as u32).then_some(&self.first)
    }

    /// Whether none of `flags` is set.
    #[inline(always)]
    pub fn has_none(&self, flags: u8) -> bool {
        self.flags & flags == 0
    }

    /// Number of record sets.
    pub fn entry_count(&self) -> usize {
        self.count as usize
    }
}
