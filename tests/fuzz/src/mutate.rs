//! Mutations for the bounded run: the same for the same seed on every machine, and no coverage to guide them (that is
//! libFuzzer's, in `./run fuzz`). They know what hurts readers of DNS: lengths, pointers, counts, cuts.

use fastrand::Rng;

/// Values that readers get wrong.
const BYTES: [u8; 14] = [
    0, 1, 4, 5, 0x0c, 0x3f, 0x40, 0x7f, 0x80, 0xbf, 0xc0, 0xfe, 0xff, 41,
];
const WORDS: [u16; 14] = [
    0, 1, 2, 8, 10, 11, 41, 0x00ff, 0x01ff, 0x0200, 0xc00c, 0xc000, 0x8000, 0xffff,
];
/// Text for zone files and configurations.
const TEXT: [&str; 26] = [
    "\"",
    "\\",
    "\\000",
    "\\255",
    "\\256",
    "(",
    ")",
    ";",
    "\n",
    " ",
    "@",
    "*",
    "$ORIGIN ",
    "$TTL ",
    "\\# 4 0102",
    "TYPE65535",
    "4294967296",
    "=",
    "\"\"\"",
    "'''",
    "[",
    "]",
    "{",
    "..",
    ".",
    "\u{feff}",
];

/// An input made from `all[at]` by one to eight changes.
pub fn mutate(rng: &mut Rng, all: &[Vec<u8>], at: usize, len_max: usize) -> Vec<u8> {
    let mut bytes = all.get(at).cloned().unwrap_or_default();
    let changes = 1 << rng.u32(0..4);
    for _ in 0..rng.u32(1..=changes) {
        change(rng, all, &mut bytes);
    }
    bytes.truncate(len_max);
    bytes
}

fn change(rng: &mut Rng, all: &[Vec<u8>], bytes: &mut Vec<u8>) {
    if bytes.is_empty() {
        bytes.extend((0..rng.usize(1..40)).map(|_| rng.u8(..)));
        return;
    }
    let at = rng.usize(0..bytes.len());
    let end = (at + rng.usize(1..40)).min(bytes.len());
    match rng.u32(0..13) {
        0 => bytes[at] ^= 1 << rng.u32(0..8),
        1 => bytes[at] = rng.u8(..),
        2 => bytes[at] = BYTES[rng.usize(0..BYTES.len())],
        3 | 4 => {
            let word = WORDS[rng.usize(0..WORDS.len())].to_be_bytes();
            bytes
                .iter_mut()
                .skip(at)
                .zip(word)
                .for_each(|(to, from)| *to = from);
        }
        5 => {
            let add = rng.u8(1..4);
            bytes[at] = if rng.bool() {
                bytes[at].wrapping_add(add)
            } else {
                bytes[at].wrapping_sub(add)
            };
        }
        6 => bytes.truncate(at),
        7 => drop(bytes.drain(at..end)),
        8 => {
            let part = bytes[at..end].to_vec();
            let to = rng.usize(0..=bytes.len());
            drop(bytes.splice(to..to, part));
        }
        9 => {
            let more: Vec<u8> = (0..rng.usize(1..20)).map(|_| rng.u8(..)).collect();
            drop(bytes.splice(at..at, more));
        }
        10 => {
            let text = TEXT[rng.usize(0..TEXT.len())].bytes();
            drop(bytes.splice(at..at, text));
        }
        11 => {
            // The tail of another input.
            let other = &all[rng.usize(0..all.len())];
            let from = rng.usize(0..=other.len());
            bytes.truncate(at);
            bytes.extend(&other[from..]);
        }
        _ => bytes
            .iter_mut()
            .skip(at)
            .take(end - at)
            .for_each(|b| *b = b.wrapping_add(1)),
    }
}
