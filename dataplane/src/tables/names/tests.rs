//! The table against a plain map: any zone of names, with binary labels, long names and, where the hash is
//! keyed with zeros, names that all share one hash.
#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

use super::*;
use proptest::prelude::*;
use std::collections::BTreeMap;

/// A name of these labels in wire form, cut to what fits.
fn wire(labels: &[Vec<u8>]) -> Vec<u8> {
    let mut name = Vec::new();
    for label in labels {
        if name.len() + 1 + label.len() < dns::NAME_MAX {
            name.push(label.len() as u8);
            name.extend(label);
        }
    }
    name.push(0);
    name
}

fn parent(name: &[u8]) -> Option<&[u8]> {
    (name[0] > 0).then(|| &name[1 + name[0] as usize..])
}

/// Names and all their ancestors, lower-cased, numbered in order.
fn close(names: &[Vec<u8>]) -> BTreeMap<Vec<u8>, u32> {
    let mut all = BTreeMap::new();
    for name in names {
        let mut at = Some(name.as_slice());
        while let Some(n) = at {
            all.insert(n.to_ascii_lowercase(), 0);
            at = parent(n);
        }
    }
    for (index, number) in all.values_mut().enumerate() {
        *number = index as u32;
    }
    all
}

fn table(reference: &BTreeMap<Vec<u8>, u32>, seed: [u64; 4]) -> Names {
    let mut builder = NamesBuilder::new(seed);
    for (name, &index) in reference {
        let service = (index % 3 == 0).then_some((index * 7, index * 5));
        builder.add(name, index, 0, &[], service);
    }
    builder.build().unwrap()
}

/// All ways to find a name agree with the map and with each other.
fn check(names: &Names, reference: &BTreeMap<Vec<u8>, u32>, name: &[u8]) {
    let lowered = name.to_ascii_lowercase();
    let want = reference.get(&lowered).map(|&index| Found {
        node: index,
        service: if index % 3 == 0 { index * 7 } else { NONE },
        place: if index % 3 == 0 { index * 5 } else { 0 },
    });
    let key = Key::new(name);
    assert_eq!(names.find(&key), want, "{name:?}");
    let hash = names.hash(&key);
    let mut candidate = Found::NONE;
    names.candidate(hash, &mut candidate);
    // Nothing is missed, and what is confirmed is the name.
    assert!(candidate.node != NONE || want.is_none(), "{name:?}");
    if lowered.len() <= 32 {
        assert_eq!(names.hash_short(&key), hash, "{name:?}");
        match names.confirm_short(candidate, &key) {
            Some(node) => assert_eq!((Some(candidate), names.index_of(node)), (want, candidate.node)),
            None => assert_ne!(Some(candidate), want, "{name:?}"),
        }
    }
    assert_eq!(names.find_suffix(&lowered), want, "{name:?}");

    let star = [b"\x01*", &lowered[..]].concat();
    let wildcard = reference.get(&star).copied();
    assert_eq!(names.wildcard(&lowered).map(|f| f.node), wildcard, "{name:?}");

    if want.is_none() {
        let mut offsets = [0; 128];
        let labels = dns::label_offsets(&lowered, &mut offsets);
        let mut encloser = parent(&lowered);
        while let Some(n) = encloser.filter(|n| !reference.contains_key(*n)) {
            encloser = parent(n);
        }
        let encloser = encloser.map(|n| (reference[n], lowered.len() - n.len()));
        // A used key, so that stale bytes of a longer name would show.
        let mut key = Key::new(&[b'z'; 255]);
        match lowered.first_chunk::<32>() {
            Some(block) if lowered.len() == 32 => key.set_short(block, 32),
            _ => key.set(&lowered, lowered.len()),
        }
        key.clear_tail();
        let found = names.closest_encloser(&key, labels, |depth| Some(offsets[labels - depth] as usize));
        let found = found.map(|(node, at)| (names.index_of(node), at));
        assert_eq!(found, encloser, "{name:?}");
    }
}

fn label() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        // Few and short: shared ancestors, and wildcards.
        6 => prop::sample::select(vec![b"a".to_vec(), b"B".to_vec(), b"*".to_vec(), b"\0".to_vec(), b"a\0".to_vec()]),
        1 => prop::collection::vec(any::<u8>(), 1..=63),
        // Lengths around those of a block.
        1 => (20usize..36).prop_map(|n| vec![b'x'; n]),
    ]
}

fn name() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        10 => prop::collection::vec(label(), 0..8),
        1 => prop::collection::vec(prop::sample::select(vec![vec![b'a'], vec![b'b']]), 100..130),
    ]
    .prop_map(|labels| wire(&labels))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, ..ProptestConfig::default() })]
    #[test]
    fn lookups_equal_a_plain_map(
        zone in prop::collection::vec(name(), 1..40),
        asked in prop::collection::vec(name(), 0..40),
        seed in prop_oneof![Just([0; 4]), any::<[u64; 4]>()],
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..20),
    ) {
        let reference = close(&zone);
        let names = table(&reference, seed);
        prop_assert_eq!(names.len(), reference.len());
        for (name, &index) in &reference {
            check(&names, &reference, name);
            let mut back = Vec::new();
            names.name_of(index, &mut back);
            prop_assert_eq!(&back, name);
            let node = names.node(index).unwrap();
            prop_assert_eq!((node.zone, node.name_len()), (index, name.len()));
        }
        for name in &asked {
            check(&names, &reference, name);
        }
        // A name that differs from one of the table in one byte, still a name.
        for (at, value) in damage {
            let mut name = at.get(&zone).clone();
            let place = at.index(name.len());
            name[place] = value;
            if dns::name_len(&name) == Ok(name.len()) {
                check(&names, &reference, &name);
            }
        }
    }

    #[test]
    fn an_entry_is_its_type_or_the_default(
        types in prop::collection::btree_set(0u16..12, 0..10),
        first: prop::sample::Index,
    ) {
        // In an order with any of them first.
        let mut order: Vec<u16> = types.iter().copied().collect();
        if !order.is_empty() {
            let by = first.index(order.len());
            order.rotate_left(by);
        }
        let entries: Vec<Entry> = order.iter().map(|&t| Entry::fixed(t, 0, u32::from(t) + 100)).collect();
        let mut builder = NamesBuilder::new([1, 2, 3, 4]);
        // Neighbours in the arena.
        builder.add(b"\0", 0, 0, &[Entry::fixed(1, 0, 1), Entry::fixed(2, 0, 2)], None);
        builder.add(b"\x01a\0", 0, 0, &entries, None);
        builder.add(b"\x01b\0", 0, 0, &[Entry::fixed(3, 0, 3), Entry::fixed(4, 0, 4)], None);
        let names = builder.build().unwrap();
        let node = names.node(1).unwrap();
        prop_assert_eq!(node.entry_count(), entries.len());
        for asked in 0..12u16 {
            let want = if types.contains(&asked) {
                Some(asked)
            } else {
                types.contains(&Entry::DEFAULT).then_some(Entry::DEFAULT)
            };
            let got = names.entry(node, asked).map(|e| e.blob);
            prop_assert_eq!(got, want.map(|t| u32::from(t) + 100));
        }
    }
}

#[test]
fn names_of_one_hash_are_told_apart() {
    // With keys of zero, names of up to eight bytes all hash to zero.
    let zone: Vec<Vec<u8>> = (0..200u8).map(|n| wire(&[vec![n]])).collect();
    let reference = close(&zone);
    let names = table(&reference, [0; 4]);
    assert!(
        reference
            .keys()
            .all(|n| names.hash(&Key::new(n)) == names.hash(&Key::new(b"\0")))
    );
    for name in reference.keys().chain([&wire(&[vec![250]])]) {
        check(&names, &reference, name);
    }
}

#[test]
fn an_empty_table_finds_nothing() {
    let names = NamesBuilder::new([0; 4]).build().unwrap();
    let key = Key::new(b"\x01a\0");
    let mut offsets = [0; 128];
    let labels = dns::label_offsets(b"\x01a\0", &mut offsets);
    assert_eq!(names.find(&key), None);
    let mut found = Found {
        node: 7,
        ..Found::NONE
    };
    names.candidate(names.hash(&key), &mut found);
    assert_eq!(found, Found::NONE);
    assert_eq!(names.wildcard(b"\0"), None);
    assert!(
        names
            .closest_encloser(&Key::new(b"\x01a\0"), labels, |_| Some(0))
            .is_none()
    );
    assert!(names.is_empty());
}
