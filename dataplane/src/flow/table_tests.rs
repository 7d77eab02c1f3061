//! The table beside a plain map, full tables, ageing, and the flood rule.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::expect_used)]

use super::*;
use crate::mmap::HUGE_PAGE;
use proptest::prelude::*;
use std::collections::HashMap;

const IDLE: Span = Span::millis(60_000);

fn key(hasher: &Hasher, n: u64) -> Key {
    hasher.two(n, 0x06_01bb)
}

fn entry(server: u16) -> Entry {
    let parties = Parties {
        class: 1,
        server,
        numbering: 1,
    };
    Entry::new(parties, Watch::Nothing)
}

fn lookup(table: &mut FlowTable, key: Key) -> Option<u16> {
    let place = table.find(key);
    table.entry(place).map(|entry| entry.parties.server)
}

/// Makes a flow; true when it found room.
fn create(table: &mut FlowTable, key: Key, server: u16) -> bool {
    table.create(key, entry(server)).is_some()
}

fn prove(table: &mut FlowTable, key: Key) {
    let place = table.find(key);
    assert!(place.is_found());
    table.prove(place);
}

/// A whole turn of the sweep: half of the idle time.
fn turn(table: &mut FlowTable, now: &mut Moment) {
    table.age(*now, usize::MAX);
    *now = now.plus(Span(IDLE.0 / 2));
    table.age(*now, usize::MAX);
}

#[test]
fn a_flow_is_one_line_and_costs_no_more_than_96_bytes() {
    assert_eq!((size_of::<Entry>(), align_of::<Entry>()), (64, 64));
    for flows in [1_000, 100_000] {
        let table = FlowTable::new(flows, IDLE).unwrap();
        assert!(table.slots() / 7 * 512 <= 96 * flows, "{flows}");
        // All that is mapped: entries and index lines end in a huge page each.
        assert!(table.bytes() <= 96 * flows + 2 * HUGE_PAGE, "{flows}");
        assert!(table.slots() >= flows * 13 / 10 - 6);
    }
    // As large as it is by default: with all that is mapped.
    let table = FlowTable::new(1 << 20, IDLE).unwrap();
    assert!(table.bytes() <= 96 << 20, "{}", table.bytes());
}

#[test]
fn as_many_flows_as_it_is_made_for_find_room() {
    for (flows, seed) in [(1_000, 1), (50_000, 2), (50_000, 3)] {
        let (mut table, hasher) = (FlowTable::new(flows, IDLE).unwrap(), Hasher::new(seed));
        for n in 0..flows as u64 {
            if create(&mut table, key(&hasher, n), n as u16) {
                prove(&mut table, key(&hasher, n));
            }
        }
        let there = (0..flows as u64)
            .filter(|&n| lookup(&mut table, key(&hasher, n)) == Some(n as u16))
            .count();
        assert!(there * 1000 >= flows * 998, "{there} of {flows}");
        assert_eq!(table.len(), there as u64);
        let tallies = table.tallies();
        assert_eq!((tallies.created, tallies.evicted), (there as u64, 0));
        assert_eq!(tallies.created + tallies.refused, flows as u64);
    }
}

#[test]
fn a_flood_of_new_flows_does_not_evict_a_busy_one() {
    let (mut table, hasher) = (FlowTable::new(1000, IDLE).unwrap(), Hasher::new(9));
    let mut busy: Vec<u64> = Vec::new();
    // As many busy flows as there is room for.
    for n in 0..1300 {
        if create(&mut table, key(&hasher, n), n as u16) {
            prove(&mut table, key(&hasher, n));
            busy.push(n);
        }
    }
    busy.retain(|&n| lookup(&mut table, key(&hasher, n)).is_some());
    assert!(busy.len() > 1100, "{}", busy.len());
    let before = table.tallies();
    let mut now = Moment(u32::MAX - 1000);
    for n in 0..200_000u64 {
        let _ = table.create(key(&hasher, 1_000_000 + n), entry(0));
        if n % 10_000 == 0 {
            // Time passes, and each busy flow has its packet.
            turn(&mut table, &mut now);
            for &n in &busy {
                lookup(&mut table, key(&hasher, n));
            }
        }
    }
    let lost = busy
        .iter()
        .filter(|&&n| lookup(&mut table, key(&hasher, n)) != Some(n as u16))
        .count();
    assert_eq!(lost, 0);
    let tallies = table.tallies();
    assert!(
        tallies.evicted > before.evicted && tallies.refused > before.refused,
        "{tallies:?}"
    );
    assert_eq!(table.len(), tallies.created - tallies.evicted - tallies.expired);
}

#[test]
fn idle_and_closed_flows_give_way_before_busy_ones() {
    let (mut table, hasher) = (FlowTable::new(7, IDLE).unwrap(), Hasher::new(4));
    // Two buckets: every flow has both to choose from.
    assert_eq!(table.slots(), 14);
    for n in 0..14 {
        assert!(create(&mut table, key(&hasher, n), n as u16));
        prove(&mut table, key(&hasher, n));
    }
    assert!(
        table.create(key(&hasher, 100), entry(100)).is_none(),
        "all are busy"
    );
    assert_eq!(table.tallies().refused, 1);

    let place = table.find(key(&hasher, 5));
    table.close(place);
    table
        .create(key(&hasher, 101), entry(101))
        .expect("a closed flow gives way");
    assert_eq!(lookup(&mut table, key(&hasher, 5)), None);
    table
        .create(key(&hasher, 102), entry(102))
        .expect("an unproven one gives way");
    assert_eq!(lookup(&mut table, key(&hasher, 101)), None);

    // Two turns without flow 7: it is idle, and gives way, but only when no unproven one is left.
    prove(&mut table, key(&hasher, 102));
    let mut now = Moment(7);
    let kept = |n: &u64| *n != 7;
    for n in (0..14).chain([102]).filter(kept) {
        lookup(&mut table, key(&hasher, n));
    }
    turn(&mut table, &mut now);
    for n in (0..14).chain([102]).filter(kept) {
        lookup(&mut table, key(&hasher, n));
    }
    turn(&mut table, &mut now);
    table
        .create(key(&hasher, 103), entry(103))
        .expect("an idle flow gives way");
    assert_eq!(lookup(&mut table, key(&hasher, 7)), None);
    assert_eq!(lookup(&mut table, key(&hasher, 102)), Some(102));
    assert_eq!(table.tallies().expired, 0);
}

#[test]
fn flows_age_by_turns_and_unproven_ones_sooner() {
    let (mut table, hasher) = (FlowTable::new(100, IDLE).unwrap(), Hasher::new(4));
    let [proven, unproven] = [1, 2].map(|n| key(&hasher, n));
    table.create(proven, entry(1)).unwrap();
    prove(&mut table, proven);
    table.create(unproven, entry(2)).unwrap();
    let mut now = Moment(u32::MAX - 5);
    turn(&mut table, &mut now);
    assert_eq!(table.len(), 2, "both were seen in this turn");
    turn(&mut table, &mut now);
    assert_eq!((lookup(&mut table, unproven), table.len()), (None, 1));
    turn(&mut table, &mut now);
    assert_eq!((lookup(&mut table, proven), table.len()), (None, 0));
    assert_eq!(table.tallies().expired, 2);
}

#[test]
fn ageing_is_spread_over_time() {
    let mut table = FlowTable::new(7000, IDLE).unwrap();
    let buckets = table.slots() / 7;
    let hasher = Hasher::new(1);
    for n in 0..7000 {
        table.create(key(&hasher, n), entry(0));
    }
    let mut now = Moment(0);
    table.age(now, 8);
    // Two turns in steps: the first finds every flow seen, the second forgets it. Each step does its share.
    let steps = 4 * buckets as u32;
    for step in 1..=steps {
        now = Moment(0).plus(Span(
            (u64::from(IDLE.0) * u64::from(step) / u64::from(steps)) as u32,
        ));
        let before = table.len();
        table.age(now, 8);
        assert!(before - table.len() <= 7, "a bucket at a time");
    }
    assert!(table.is_empty(), "{}", table.len());
}

#[test]
fn a_place_is_not_good_for_the_next_tenant() {
    let (mut table, hasher) = (FlowTable::new(7, IDLE).unwrap(), Hasher::new(4));
    let mut places = HashMap::new();
    for n in 0..200 {
        let key = key(&hasher, n);
        table.create(key, entry(n as u16)).unwrap();
        places.insert(n, (key, table.find(key)));
    }
    let valid = places
        .iter()
        .filter(|(_, (key, place))| table.is_at(*place, *key))
        .count();
    assert_eq!(valid, 14);
}

proptest! {
    #[test]
    fn a_table_with_room_equals_a_map(
        steps in proptest::collection::vec((0u64..400, any::<bool>(), any::<u8>()), 0..800),
        seed: u64,
    ) {
        let (mut table, hasher) = (FlowTable::new(2000, IDLE).unwrap(), Hasher::new(seed));
        let mut map = HashMap::new();
        let mut now = Moment(seed as u32);
        for (n, write, step) in steps {
            let key = key(&hasher, n);
            prop_assert_eq!(lookup(&mut table, key), map.get(&n).copied());
            if write && !map.contains_key(&n) {
                table.create(key, entry(n as u16 + u16::from(step))).unwrap();
                map.insert(n, n as u16 + u16::from(step));
            }
            if step == 0 {
                turn(&mut table, &mut now);
                turn(&mut table, &mut now);
                map.clear();
            }
            prop_assert_eq!(table.len(), map.len() as u64);
        }
    }

    #[test]
    fn a_crowded_table_never_gives_another_flows_entry(
        steps in proptest::collection::vec((0u64..300, 0u8..5), 0..2000),
        seed: u64,
    ) {
        let (mut table, hasher) = (FlowTable::new(30, IDLE).unwrap(), Hasher::new(seed));
        let mut now = Moment(seed as u32);
        for (n, step) in steps {
            let key = key(&hasher, n);
            let place = table.find(key);
            match (place.is_found(), step) {
                (true, _) => {
                    // However full: a lookup reads two index lines at most.
                    prop_assert!(table.buckets(key).contains(&FlowTable::bucket(place)));
                    prop_assert!(table.is_at(place, key));
                    prop_assert_eq!(table.entry(place).map(|e| e.parties.server), Some(n as u16));
                    match step {
                        0 => table.close(place),
                        1 => table.prove(place),
                        _ => {}
                    }
                }
                (false, 4) => table.age(now, 3),
                (false, _) => _ = create(&mut table, key, n as u16),
            }
            now = now.plus(Span(Span::PER_SECOND));
            let tallies = table.tallies();
            prop_assert_eq!(table.len(), tallies.created - tallies.evicted - tallies.expired);
            prop_assert!(table.len() <= table.slots() as u64);
        }
        for (away, guests) in table.away_and_guests() {
            prop_assert_eq!(away, guests);
        }
    }
}
