//! Draws over shares, sites, hashes and counts. Expected shares are worked out by hand; spreads are five standard
//! deviations of the binomial.

use super::super::Client;
use super::*;
use crate::link::WordTarget;
use crate::tables::plans::{Hot, Policy, Service};
use crate::tables::words::{self, ALWAYS_WHOLE, site_word};
use std::collections::HashMap;

/// Members at sites 0, 1, 2 ..., as many as `sites` says, in one word or one word each.
fn plans(sites: &[usize], flags: u8, answers: u8, spread: bool) -> Plans {
    let (mut groups, mut first) = (Vec::new(), 0u32);
    for (site, &count) in sites.iter().enumerate() {
        let mask = ((1u64 << count) - 1) << if spread { 0 } else { first };
        groups.push(Group {
            mask,
            first,
            word: if spread { 10 + site as u16 } else { 10 },
            site: site as u16,
        });
        first += count as u32;
    }
    let mut pool = Pool {
        answers,
        flags,
        weight_max: 3,
        ..Pool::default()
    }
    .with_groups(0, sites.len() as u16);
    if !spread {
        pool = pool.in_one_word(10, (1 << first) - 1, 0);
    }
    let table = |n: u32| Table::from_vec((0..u64::from(n)).map(|i| i * 0x1_0001 + 5).collect()).unwrap();
    Plans {
        hot: Table::from_vec(Hot::of(&[] as &[Service], &[])).unwrap(),
        services: Table::from_vec(vec![]).unwrap(),
        policies: Table::from_vec(vec![Policy::default()]).unwrap(),
        pools: Table::from_vec(vec![pool]).unwrap(),
        groups: Table::from_vec(groups).unwrap(),
        records_a: Table::from_vec(vec![]).unwrap(),
        records_aaaa: Table::from_vec(vec![]).unwrap(),
        // Weights 1, 2, 3, 1, 2, 3 ...
        weights_a: Table::from_vec((0..first as u16).map(|i| 1 + i % 3).collect()).unwrap(),
        weights_aaaa: Table::from_vec(vec![]).unwrap(),
        identities_a: table(first),
        identities_aaaa: table(0),
        layout: 1,
    }
}

struct Lab {
    plans: Plans,
    cell: Cell,
    chooser: Chooser,
    asker: Asker,
}

impl Lab {
    /// All members are up, and `tiers` rank the sites.
    fn new(sites: &[usize], tiers: &[&[u8]], flags: u8, answers: u8, spread: bool) -> Self {
        let mut lab = Self {
            plans: plans(sites, flags, answers, spread),
            cell: Cell::new(tiers.iter().copied()),
            chooser: Chooser::new(7),
            asker: Asker {
                window: 60,
                ..Asker::default()
            },
        };
        (0..sites.iter().sum::<usize>()).for_each(|member| lab.member(member, true, 16));
        lab
    }

    /// Sets a member, by its index.
    fn member(&mut self, member: usize, up: bool, share: u8) {
        let groups = self.plans.groups.iter();
        let group = groups
            .rev()
            .find(|g| g.first as usize <= member && g.mask != 0)
            .unwrap();
        let bit = group.mask.trailing_zeros() + member as u32 - group.first;
        let word = group.word;
        let mut members = self.chooser.words.members(word);
        members.set(bit, up, share);
        self.chooser
            .words
            .set(WordTarget::Members(word.into()), members.word());
    }

    fn site(&mut self, site: u32, share: u16) {
        self.chooser.words.set(WordTarget::Site(site), site_word(share));
    }

    fn draw(&mut self) -> Vec<u32> {
        let pool = self.plans.pools[0];
        let family = self.plans.family(false);
        let chosen = self
            .chooser
            .choose(&self.plans, &pool, &self.cell, family, &self.asker, &mut Silent);
        assert!(!chosen.all_down || self.chooser.words.members(10).up == 0);
        chosen.members[..chosen.count].to_vec()
    }

    /// How often each member is given in `n` answers of one.
    fn count(&mut self, n: usize) -> Vec<usize> {
        let mut counts = vec![0; self.plans.weights_a.len()];
        (0..n)
            .flat_map(|_| self.draw())
            .for_each(|member| counts[member as usize] += 1);
        counts
    }
}

#[track_caller]
fn near(count: usize, n: usize, share: f64) {
    let spread = 5.0 * (n as f64 * share * (1.0 - share)).sqrt();
    let expected = n as f64 * share;
    assert!(
        (count as f64 - expected).abs() <= spread,
        "{count} of {n}, not {expected} +- {spread}"
    );
}

#[test]
fn a_member_ramps_by_its_share() {
    for spread in [false, true] {
        // One member at each of two sites; the first site's, at 4 of 16, is the better one.
        let mut lab = Lab::new(&[1, 1], &[&[0], &[1]], 0, 1, spread);
        lab.member(0, true, 4);
        let counts = lab.count(10_000);
        near(counts[0], 10_000, 0.25);
        assert_eq!(counts[0] + counts[1], 10_000);
        // With nobody else up its share does not count; without a share of its own neither.
        lab.member(1, false, 16);
        assert_eq!(lab.count(100), [100, 0]);
        lab.member(0, true, 0);
        assert_eq!(lab.count(100), [100, 0]);
        lab.member(1, true, 1);
        assert_eq!(lab.count(100), [0, 100]);
    }
}

#[test]
fn a_site_sheds_to_the_next_tier() {
    for spread in [false, true] {
        let mut lab = Lab::new(&[3, 2], &[&[0], &[1]], 0, 1, spread);
        lab.site(0, 64);
        let counts = lab.count(10_000);
        near(counts[..3].iter().sum(), 10_000, 0.25);
        lab.site(0, 0);
        assert_eq!(lab.count(100)[..3], [0, 0, 0]);
        // All sites over: as if none was.
        lab.site(1, 0);
        assert_eq!(lab.count(99), [33, 33, 33, 0, 0]);
        // What nothing else can replace is given however its site stands.
        (0..3).for_each(|member| lab.member(member, false, 16));
        assert_eq!(lab.count(100), [0, 0, 0, 50, 50]);
    }
}

#[test]
fn answers_are_filled_up_in_the_order_of_the_tiers() {
    for spread in [false, true] {
        let tiers: &[&[u8]] = &[&[1], &[0], &[2]];
        let mut lab = Lab::new(&[2, 1, 3], tiers, Pool::FILLS, 4, spread);
        for _ in 0..10 {
            let members = lab.draw();
            // Site 1 has member 2, site 0 members 0 and 1, site 2 the rest.
            assert_eq!(members[0], 2);
            assert!(members[1] < 2 && members[2] < 2 && members[1] != members[2]);
            assert!(members[3] > 2, "{members:?}");
        }
        lab.member(2, false, 16);
        lab.member(0, false, 16);
        assert_eq!(lab.draw()[0], 1);
        assert_eq!(lab.draw().len(), 4);
        // Fewer are up than are asked for: each once.
        lab.member(4, false, 16);
        let mut members = lab.draw();
        members.sort_unstable();
        assert_eq!(members, [1, 3, 5]);
        // Without it the first tier is all there is.
        lab.plans.pools[0].flags &= !Pool::FILLS;
        assert_eq!(lab.draw(), [1]);
    }
}

#[test]
fn a_pool_that_does_not_look_at_sites_is_not_shed() {
    let mut lab = Lab::new(&[1, 1], &[&[0], &[1]], 0, 1, false);
    let groups: Vec<Group> = lab
        .plans
        .groups
        .iter()
        .map(|g| Group {
            site: ALWAYS_WHOLE,
            ..*g
        })
        .collect();
    lab.plans.groups = Table::from_vec(groups).unwrap();
    lab.site(0, 0);
    assert_eq!(lab.count(50), [50, 0]);
}

#[test]
fn shares_of_other_pools_in_a_word_change_nothing() {
    let mut lab = Lab::new(&[2], &[&[0]], 0, 1, false);
    let mut members = lab.chooser.words.members(10);
    members.set(40, true, 3);
    lab.chooser.words.set(WordTarget::Members(10), members.word());
    assert_eq!(lab.count(100), [50, 50]);
    // The usual draw leaves such a word to the others, which do the same.
    let (pool, mut drawn) = (lab.plans.pools[0], 0);
    assert_eq!(lab.chooser.next_run(&pool, &lab.cell, &mut drawn), None);
    let mut drawn = Drawn::default();
    let count = lab
        .chooser
        .draw_in_word(&lab.plans, &pool, &lab.cell, &lab.plans.weights_a, &mut drawn);
    assert_eq!((count, words::Members::whole(3, 0).partial()), (1, 0));
}

/// Who gets which member, of 4,000 client networks.
fn map(lab: &mut Lab) -> HashMap<u32, Vec<u32>> {
    (0..4000u32)
        .map(|client| {
            lab.asker.hash = client_hash(Client::V4((client << 8 | client & 0xff).to_be_bytes()), 24, 56);
            (client, lab.draw())
        })
        .collect()
}

#[test]
fn a_dead_member_moves_its_own_clients_alone() {
    for spread in [false, true] {
        let flags = Pool::HASHED | Pool::WEIGHTED;
        let mut lab = Lab::new(&[3, 3], &[&[0, 1]], flags, 1, spread);
        let before = map(&mut lab);
        // Weights 1, 2, 3, 1, 2, 3.
        for (member, share) in [1.0, 2.0, 3.0, 1.0, 2.0, 3.0]
            .iter()
            .map(|w| w / 12.0)
            .enumerate()
        {
            near(
                before.values().filter(|m| m[0] as usize == member).count(),
                4000,
                share,
            );
        }
        assert_eq!(before, map(&mut lab), "the same client gets the same member");
        lab.member(2, false, 16);
        let without = map(&mut lab);
        assert!(
            before
                .iter()
                .all(|(client, m)| m[0] == 2 || without[client] == *m)
        );
        // Those of the dead one are spread over the others by weight: of 9, the last has 3.
        let moved: Vec<_> = before
            .iter()
            .filter(|(_, m)| m[0] == 2)
            .map(|(c, _)| without[c][0])
            .collect();
        near(moved.iter().filter(|m| **m == 5).count(), moved.len(), 3.0 / 9.0);
        // A heavier member takes what must move, and nothing else moves.
        lab.member(2, true, 16);
        lab.plans.weights_a[0] = 4;
        let heavier = map(&mut lab);
        let moved = before.iter().filter(|(client, m)| heavier[client] != **m);
        assert!(moved.clone().all(|(client, _)| heavier[client] == [0]));
        // From 1/12 to 4/15.
        near(moved.count(), 4000, 4.0 / 15.0 - 1.0 / 12.0);
    }
}

#[test]
fn hashing_looks_at_the_prefix_alone_and_gives_distinct_members() {
    let hash = |a: [u8; 4], bits| client_hash(Client::V4(a), bits, 0);
    assert_eq!(hash([192, 0, 2, 1], 24), hash([192, 0, 2, 255], 24));
    assert_ne!(hash([192, 0, 2, 1], 24), hash([192, 0, 3, 1], 24));
    assert_ne!(hash([192, 0, 2, 1], 32), hash([192, 0, 2, 255], 32));
    assert_eq!(hash([192, 0, 2, 1], 0), hash([10, 0, 0, 1], 0));
    let v6 = |last: u8, bits| client_hash(Client::V6([last; 16]), 0, bits);
    assert_ne!(v6(1, 128), v6(2, 128));
    assert_eq!(v6(1, 0), v6(2, 0));
    let mut lab = Lab::new(&[4, 4], &[&[0, 1]], Pool::HASHED, 5, true);
    for mut members in map(&mut lab).into_values() {
        members.sort_unstable();
        members.dedup();
        assert_eq!(members.len(), 5);
    }
}

#[test]
fn least_selected_evens_out_and_favours_nobody_who_returns() {
    for spread in [false, true] {
        let mut lab = Lab::new(&[2, 2], &[&[0, 1]], Pool::LEAST_SELECTED, 1, spread);
        assert_eq!(lab.count(400), [100; 4]);
        lab.member(3, false, 16);
        assert_eq!(lab.count(300), [100, 100, 100, 0]);
        lab.member(3, true, 16);
        // Not the next hundred: a quarter each.
        let counts = lab.count(400);
        assert!(counts.iter().all(|c| (99..=101).contains(c)), "{counts:?}");
    }
}

#[test]
fn least_selected_counts_over_all_clients_and_forgets() {
    // Clients of one class use site 0 first; all others prefer whoever had less.
    let mut lab = Lab::new(&[1, 1], &[&[0, 1]], Pool::LEAST_SELECTED, 1, false);
    let all = lab.cell;
    lab.count(2);
    lab.cell = Cell::new([&[0u8][..], &[1]]);
    assert_eq!(lab.count(60), [60, 0]);
    lab.cell = all;
    let counts = lab.count(50);
    assert_eq!(counts, [0, 50]);
    // Two windows on nothing is remembered.
    lab.asker.seconds += 121;
    assert_eq!(lab.count(20), [10, 10]);
}

#[test]
fn least_selected_goes_by_weight() {
    let mut lab = Lab::new(&[3], &[&[0]], Pool::LEAST_SELECTED | Pool::WEIGHTED, 1, false);
    // Weights 1, 2, 3.
    let counts = lab.count(600);
    assert!(
        counts
            .iter()
            .zip([100, 200, 300])
            .all(|(c, e)| c.abs_diff(e) <= 2),
        "{counts:?}"
    );
}
