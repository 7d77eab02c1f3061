//! What passes, by arithmetic on a clock of a tick a microsecond.

use super::*;
use proptest::prelude::*;

const CLIENT: Address = Address::V4([198, 51, 100, 7]);
const SECOND: u64 = 1_000_000;

fn rules(per_second: u32, burst: u32, slip: u8) -> Rules {
    Rules {
        per_second,
        burst,
        slip,
        prefix_v4: 24,
        prefix_v6: 56,
        allow: Prefixes::default(),
    }
}

fn limit(workers: u32, rules: &Rules) -> RateLimit {
    let mut limit = RateLimit::new(workers, TickRate::from_hz(SECOND), [0x1234_5678_9abc_def0, 77]);
    limit.adopt(Some(rules));
    limit
}

/// How many of `count` replies at one time are sent, slip, and are dropped.
fn ask(
    limit: &mut RateLimit,
    rules: &Rules,
    account: Account,
    name: u64,
    at: u64,
    count: usize,
) -> [usize; 3] {
    let mut out = [0; 3];
    for _ in 0..count {
        match limit.pass(rules, CLIENT, account, name, Ticks(at)) {
            Pass::Send => out[0] += 1,
            Pass::Slip => out[1] += 1,
            Pass::Drop => out[2] += 1,
        }
    }
    out
}

#[test]
fn a_burst_then_the_rate_and_every_second_of_the_rest_slips() {
    let rules = rules(10, 5, 2);
    let mut limit = limit(1, &rules);
    let mut at = |at, count| ask(&mut limit, &rules, Account::Answer, 1, at, count);
    assert_eq!(at(50 * SECOND, 105), [5, 50, 50]);
    assert_eq!(at(50 * SECOND + 99_999, 2), [0, 1, 1]);
    assert_eq!(at(50 * SECOND + 100_000, 3), [1, 1, 1]);
    // Rest fills the bucket, no further.
    assert_eq!(at(90 * SECOND, 9), [5, 2, 2]);
}

#[test]
fn slip_1_sends_all_that_is_over_and_slip_0_nothing() {
    for (slip, want) in [(1, [1, 9, 0]), (0, [1, 0, 9]), (3, [1, 3, 6])] {
        let rules = rules(1, 1, slip);
        let got = ask(&mut limit(1, &rules), &rules, Account::Error, 0, SECOND, 10);
        assert_eq!(got, want, "slip {slip}");
    }
}

#[test]
fn workers_share_the_limits() {
    let rules = rules(100, 40, 0);
    let mut four = limit(4, &rules);
    assert_eq!(
        ask(&mut four, &rules, Account::Answer, 1, SECOND, 50),
        [10, 0, 40]
    );
    // 100 a second over four workers: one every 40 ms in each.
    assert_eq!(
        ask(&mut four, &rules, Account::Answer, 1, SECOND + 39_999, 9),
        [0, 0, 9]
    );
    assert_eq!(
        ask(&mut four, &rules, Account::Answer, 1, SECOND + 40_000, 9),
        [1, 0, 8]
    );
    // More workers than replies in a burst: each lets one through.
    assert_eq!(
        ask(&mut limit(64, &rules), &rules, Account::Answer, 1, SECOND, 9),
        [1, 0, 8]
    );
}

#[test]
fn accounts_and_names_are_limited_apart_and_prefixes_as_one() {
    let rules = rules(1, 3, 0);
    let mut limit = limit(1, &rules);
    for account in [
        Account::Answer,
        Account::Nodata,
        Account::Nxdomain,
        Account::Referral,
        Account::Error,
    ] {
        for name in [0, 1, 2] {
            assert_eq!(
                ask(&mut limit, &rules, account, name, SECOND, 4),
                [3, 0, 1],
                "{account:?} {name}"
            );
        }
    }
    let mut of = |client| limit.pass(&rules, client, Account::Answer, 1, Ticks(SECOND));
    assert_eq!(of(Address::V4([198, 51, 100, 255])), Pass::Drop);
    assert_eq!(of(Address::V4([198, 51, 101, 7])), Pass::Send);
    // A /56 is seven bytes.
    let six = |seventh, eighth| {
        let mut address = [0x20, 1, 0x0d, 0xb8, 0, 0, seventh, eighth, 0, 0, 0, 0, 0, 0, 0, 0];
        address[15] = eighth;
        Address::V6(address)
    };
    assert_eq!(
        [of(six(1, 1)), of(six(1, 2)), of(six(1, 3)), of(six(1, 4))],
        [Pass::Send, Pass::Send, Pass::Send, Pass::Drop]
    );
    assert_eq!(of(six(2, 4)), Pass::Send);
}

#[test]
fn the_allow_list_is_by_prefix() {
    let rules = Rules {
        allow: Prefixes::new(
            [([198, 51, 100, 0], 29)],
            [([0x20, 1, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0], 32)],
        ),
        ..rules(1, 1, 0)
    };
    assert!(rules.allows(CLIENT) && !rules.allows(Address::V4([198, 51, 100, 8])));
    assert!(rules.allows(Address::V6([
        0x20, 1, 0x0d, 0xb8, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9
    ])));
    assert!(!rules.allows(Address::V6([0xfe; 16])));
}

#[test]
fn whole_addresses_and_no_prefix_at_all() {
    let one = Rules {
        prefix_v4: 32,
        prefix_v6: 64,
        ..rules(1, 1, 0)
    };
    assert_ne!(one.prefix(CLIENT), one.prefix(Address::V4([198, 51, 100, 8])));
    let all = Rules {
        prefix_v4: 0,
        prefix_v6: 0,
        ..rules(1, 1, 0)
    };
    assert_eq!(all.prefix(CLIENT), all.prefix(Address::V4([1, 2, 3, 4])));
    assert_eq!(all.prefix(Address::V6([9; 16])), all.prefix(Address::V6([8; 16])));
}

/// A million forged networks a second do not free a limited one: the table loses its fullest buckets first.
#[test]
fn a_flood_of_other_networks_does_not_free_a_limited_one() {
    let rules = rules(20, 20, 0);
    let mut limit = limit(1, &rules);
    let (mut sent, mut now) = (0, SECOND);
    for n in 0..2 * SECOND as u32 {
        now += 1;
        let forged = Address::V4((n.wrapping_mul(0x9e37_79b1) | 0x100).to_be_bytes());
        limit.pass(&rules, forged, Account::Answer, 1, Ticks(now));
        if n % 100 == 0 && limit.pass(&rules, CLIENT, Account::Answer, 1, Ticks(now)) == Pass::Send {
            sent += 1;
        }
    }
    // Two seconds at 20, and the burst; to the one reply that rounding may give.
    assert!((59..=61).contains(&sent), "{sent} sent");
}

proptest! {
    /// In any time span no more passes than the burst and the rate, and a client below the rate is never limited.
    #[test]
    fn never_more_than_the_rate_and_never_less(
        per_second in 1u32..2000, burst in 1u32..50, gaps in proptest::collection::vec(0u64..20_000, 1..300),
    ) {
        let rules = rules(per_second, burst, 2);
        let (mut limit, mut slow) = (limit(1, &rules), limit(1, &rules));
        let (start, mut now) = (7 * SECOND, 7 * SECOND);
        let (mut sent, mut calm) = (0u64, 7 * SECOND);
        let interval = SECOND / u64::from(per_second);
        for gap in gaps {
            now += gap;
            sent += u64::from(limit.pass(&rules, CLIENT, Account::Answer, 1, Ticks(now)) == Pass::Send);
            prop_assert!(sent <= u64::from(burst) + (now - start) / interval);
            calm += interval + gap;
            prop_assert_eq!(slow.pass(&rules, CLIENT, Account::Answer, 1, Ticks(calm)), Pass::Send);
        }
    }

    /// A clock that jumps either way, and any key: no panic, and the first of a new client passes.
    #[test]
    fn any_clock_does(times in proptest::collection::vec(any::<u64>(), 1..50), client: [u8; 16], name: u64) {
        let rules = rules(1, 1, 1);
        let mut limit = limit(1, &rules);
        for (i, time) in times.into_iter().enumerate() {
            let pass = limit.pass(&rules, Address::V6(client), Account::Nxdomain, name, Ticks(time));
            prop_assert!(i > 0 || pass == Pass::Send);
        }
    }
}
