//! The key of the name table: a lower-cased name in wire form, padded to whole blocks, so that hashing and
//! comparing work on blocks and never look at a length byte by byte.

use crate::wire::dns;

/// One 32-byte block of a name.
pub(super) type Block = [u8; 32];

/// A lower-cased name in wire form, zero-padded to whole 32-byte blocks.
#[derive(Clone, Copy, Debug)]
pub struct Key {
    bytes: [u8; dns::NAME_ROOM],
    len: u16,
}

impl Default for Key {
    fn default() -> Self {
        Self {
            bytes: [0; dns::NAME_ROOM],
            len: 0,
        }
    }
}

/// `MASKS[32 - n..]` keeps the first n of 32 bytes.
static MASKS: [u8; 64] = {
    let mut masks = [0; 64];
    let mut rest: &mut [u8] = &mut masks;
    let mut n = 0;
    while n < 32 {
        match rest.split_first_mut() {
            Some((first, tail)) => {
                *first = 0xff;
                rest = tail;
            }
            None => break,
        }
        n += 1;
    }
    masks
};

/// `block`, lower-cased, with everything from byte `len` on zeroed.
#[inline(always)]
fn lower_block(block: &Block, len: usize) -> Block {
    let keep = MASKS
        .get(32 - len.min(32)..)
        .and_then(|m| m.first_chunk::<32>())
        .unwrap_or(&[0; 32]);
    let mut out = [0; 32];
    for ((out, &byte), &mask) in out.iter_mut().zip(block).zip(keep) {
        *out = dns::lower(byte) & mask;
    }
    out
}

impl Key {
    /// Sets the key to the first `len` bytes of `name`, at most 255. Bytes of `name` behind them
    /// are not interpreted but may be read.
    #[inline(always)]
    pub fn set(&mut self, name: &[u8], len: usize) {
        match name.first_chunk::<32>() {
            Some(first) if len <= 32 => {
                self.len = len as u16;
                if let Some(to) = self.bytes.first_chunk_mut::<32>() {
                    *to = lower_block(first, len);
                }
            }
            _ => self.set_long(name, len),
        }
    }

    #[cold]
    #[inline(never)]
    fn set_long(&mut self, name: &[u8], len: usize) {
        let len = len.min(dns::NAME_MAX);
        self.len = len as u16;
        let mut at = 0;
        // At most eight blocks.
        while at < len {
            let block = match name.get(at..).and_then(|n| n.first_chunk::<32>()) {
                Some(block) => lower_block(block, len - at),
                None => {
                    let mut short = [0; 32];
                    for (to, from) in short.iter_mut().zip(name.get(at..).unwrap_or(&[])) {
                        *to = *from;
                    }
                    lower_block(&short, len - at)
                }
            };
            if let Some(to) = self.bytes.get_mut(at..).and_then(|b| b.first_chunk_mut::<32>()) {
                *to = block;
            }
            at += 32;
        }
    }

    /// A key of a name in wire form.
    pub fn new(name: &[u8]) -> Self {
        let mut key = Self::default();
        key.set(name, name.len());
        key
    }

    /// The name's bytes.
    #[inline]
    pub fn name(&self) -> &[u8] {
        self.bytes.get(..self.len as usize).unwrap_or(&[])
    }

    /// Length in bytes, root label included.
    #[inline]
    pub fn len(&self) -> usize {
        self.len as usize
    }

    /// True before the first [`Key::set`].
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The first block, zero-padded.
    #[inline(always)]
    pub(super) fn first_block(&self) -> &Block {
        // NAME_ROOM is at least one block.
        self.bytes.first_chunk::<32>().unwrap_or(&[0; 32])
    }

    /// The padded bytes from the second block on, up to the last block that holds name bytes.
    #[inline]
    pub(super) fn tail(&self) -> &[u8] {
        let end = (self.len as usize).div_ceil(32) * 32;
        self.bytes.get(32..end).unwrap_or(&[])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn key_is_the_lower_cased_name_padded(bytes in proptest::collection::vec(any::<u8>(), 1..400), len in 1usize..=255) {
            let len = len.min(bytes.len());
            // A used key, so that stale bytes of a longer name would show.
            let mut key = Key::new(&[b'Z'; 255]);
            key.set(&bytes, len);
            let lowered: Vec<u8> = bytes[..len].iter().map(u8::to_ascii_lowercase).collect();
            prop_assert_eq!(key.name(), &lowered[..]);
            let padded = len.div_ceil(32) * 32;
            let mut all = key.first_block().to_vec();
            all.extend_from_slice(key.tail());
            prop_assert_eq!(all.len(), padded);
            prop_assert_eq!(&all[..len], &lowered[..]);
            prop_assert!(all[len..].iter().all(|&b| b == 0));
        }
    }
}
