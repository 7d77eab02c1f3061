//! Rate limits under floods: the rule to the packet.

use super::*;

fn limited(per_second: u32, burst: u32, slip: u8) -> Config {
    let mut config = config();
    config.dns.rate_limit = Some(RateLimit {
        per_second,
        burst,
        slip,
        prefix_v4: 24,
        prefix_v6: 56,
        allow: vec!["203.0.113.128/25".parse().unwrap()],
    });
    config
}

/// The frame from another IPv4 source, without UDP checksum.
fn from(frame: Vec<u8>, source: [u8; 4]) -> Vec<u8> {
    let mut frame = frames::with_ipv4_header(frame, 0, |header| header[12..16].copy_from_slice(&source));
    frame[40..42].fill(0);
    frame
}

/// Sends queries at once; the counters that changed and the replies.
fn flood(lab: &mut Lab, source: [u8; 4], queries: Vec<Vec<u8>>) -> (Vec<(Counter, u64)>, Vec<Reply>) {
    let before = lab.counters();
    let mut replies = Vec::new();
    for some in queries.chunks(32) {
        let frames: Vec<_> = some
            .iter()
            .map(|query| from(frames::query(false, 0, query), source))
            .collect();
        replies.extend(lab.exchange(&frames).iter().map(|frame| reply(frame)));
    }
    (changes(&before, &lab.counters()), replies)
}

fn same(name: &str, count: usize) -> Vec<Vec<u8>> {
    vec![message(name, IN, A, Some(&[])); count]
}

fn random(parent: &str, numbers: Range<usize>) -> Vec<Vec<u8>> {
    numbers
        .map(|n| message(&format!("r{n}.{parent}"), IN, A, Some(&[])))
        .collect()
}

/// What a burst of 5 and slip 2 make of 105 queries: 5 answers, 50 empty ones with TC, 50 drops.
fn by_the_rule(outcome: Counter) -> Vec<(Counter, u64)> {
    let mut want = vec![
        (Received, 105),
        (Transmitted, 55),
        (Replied, 55),
        (DropRateLimit, 50),
        (outcome, 5),
        (DnsSlipped, 50),
    ];
    want.sort_by_key(|(counter, _)| *counter as usize);
    want
}

const FLOODER: [u8; 4] = [198, 51, 100, 7];
const HONEST: [u8; 4] = [203, 0, 113, 7];

#[test]
fn a_flood_gets_the_rate_and_honest_clients_their_answers() {
    let mut lab = lab(limited(10, 5, 2));
    for (queries, outcome) in [
        (same("www.example.com", 105), DnsAnswer),
        (same("vod.example.com", 105), DnsAnswer),
        // Names without end count as one: by zone, by wildcard, by cut; errors all together.
        (random("example.com", 0..105), DnsNxdomain),
        (random("wild.example.com", 0..105), DnsAnswer),
        (random("child.example.com", 0..105), DnsReferral),
        (random("example.net", 0..105), DnsRefused),
    ] {
        let (changed, replies) = flood(&mut lab, FLOODER, queries);
        assert_eq!(changed, by_the_rule(outcome), "{outcome:?}");
        for slipped in replies.iter().filter(|reply| reply.tc) {
            assert_eq!((slipped.rcode, slipped.counts), (0, [1, 0, 0, 1]));
        }
        assert_eq!(replies.iter().filter(|reply| reply.tc).count(), 50);
    }
    // Others get answers in the midst of it, and so does the flooder for names that it did not ask.
    let (changed, _) = flood(&mut lab, HONEST, same("www.example.com", 5));
    assert!(changed.contains(&(DnsAnswer, 5)), "{changed:?}");
    let (changed, _) = flood(&mut lab, FLOODER, same("alias.example.com", 5));
    assert!(changed.contains(&(DnsAnswer, 5)), "{changed:?}");
    // A tenth of a second later there is one token more; after half a second all five.
    lab.wait(SECOND / 10);
    let (changed, _) = flood(&mut lab, FLOODER, same("www.example.com", 3));
    assert!(changed.contains(&(DnsAnswer, 1)), "{changed:?}");
    lab.wait(SECOND);
    let (changed, _) = flood(&mut lab, FLOODER, same("www.example.com", 9));
    assert!(changed.contains(&(DnsAnswer, 5)), "{changed:?}");
    // Over ten seconds: the burst and ten a second.
    let (before, mut asked) = (lab.counters(), 0);
    lab.wait(SECOND);
    for _ in 0..1000 {
        asked += flood(&mut lab, FLOODER, same("vod.example.com", 2)).1.len();
        lab.wait(SECOND / 100);
    }
    let answers = lab.counters().get(DnsAnswer) - before.get(DnsAnswer);
    assert!((104..=106).contains(&answers), "{answers} of {asked}");
}

/// Eight seconds of random names below one zone, and below none of ours, from all over one network: 24 and 4 queries every ten
/// milliseconds. Four clients in four other networks ask five queries a second each, two of them for names that do not exist
/// or are not served.
#[test]
fn honest_clients_do_not_feel_a_flood_of_random_names() {
    const SLIP: u64 = 3;
    let mut lab = lab(limited(10, 5, SLIP as u8));
    let asked = [
        ("www.example.com", 0, 2),
        ("none.example.com", 3, 0),
        ("vod.example.com", 0, 2),
        ("www.example.net", 5, 0),
    ];
    let (before, mut rng) = (lab.counters(), fastrand::Rng::with_seed(3));
    let (mut honest, mut flooders) = (0, Vec::new());
    for turn in 0..800usize {
        let mut frames = Vec::new();
        for n in 0..28 {
            let parent = if n < 24 { "example.com" } else { "example.net" };
            let query = message(&format!("r{:x}.{parent}", rng.u64(..)), IN, A, None);
            let source = [198, 51, 100, rng.u8(1..)];
            frames.push(from(frames::query(false, 0, &query), source));
        }
        // Each at a turn of its own, one query after the other; their ids say what.
        if turn % 5 == 0 {
            let (client, which) = (turn / 5 % 4, turn / 20 % 4);
            let mut query = message(asked[which].0, IN, A, Some(&[]));
            query[..2].copy_from_slice(&[0xff, which as u8]);
            let frame = from(frames::query(false, 0, &query), [203, client as u8, 113, 7]);
            frames.insert(rng.usize(..frames.len()), frame);
        }
        for reply in lab.exchange(&frames).iter().map(|frame| reply(frame)) {
            match reply.bytes[0] {
                0xff => {
                    let (_, rcode, answers) = asked[usize::from(reply.bytes[1])];
                    assert_eq!((reply.rcode, reply.tc, reply.counts[1]), (rcode, false, answers));
                    honest += 1;
                }
                _ => flooders.push((reply.rcode, reply.tc)),
            }
        }
        lab.wait(SECOND / 100);
    }
    assert_eq!(honest, 160);
    let count = |what| flooders.iter().filter(|came| **came == what).count() as u64;
    let (missing, refused, slipped) = (count((3, false)), count((5, false)), count((0, true)));
    assert_eq!(missing + refused + slipped, flooders.len() as u64);
    // Each of the two accounts: the burst, ten a second, and of the rest one in three empty.
    for passed in [missing, refused] {
        assert!((84..=86).contains(&passed), "{missing} {refused}");
    }
    assert_eq!(slipped, (19_200 - missing) / SLIP + (3_200 - refused) / SLIP);
    // Forty of each from the honest.
    let mut want = vec![
        (Received, 22_560),
        (Transmitted, 160 + missing + refused + slipped),
        (Replied, 160 + missing + refused + slipped),
        (DropRateLimit, 22_400 - missing - refused - slipped),
        (DnsAnswer, 80),
        (DnsNxdomain, 40 + missing),
        (DnsRefused, 40 + refused),
        (DnsSlipped, slipped),
    ];
    want.sort_by_key(|(counter, _)| *counter as usize);
    assert_eq!(changes(&before, &lab.counters()), want);
}

#[test]
fn whole_malformed_and_foreign_errors_share_one_account() {
    let mut lab = lab(limited(10, 5, 2));
    let queries = (0..105)
        .map(|n| match n % 3 {
            0 => vec![0x12, 0x34, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
            1 => message("example.net", IN, A, None),
            _ => message("www.example.com", 9, A, None),
        })
        .collect();
    let (changed, replies) = flood(&mut lab, FLOODER, queries);
    // Every second of a hundred slips, unless there is no question to ask again.
    let slipped = replies.iter().filter(|reply| reply.tc).count() as u64;
    assert!((30..=36).contains(&slipped), "{slipped}");
    assert!(changed.contains(&(DropRateLimit, 100 - slipped)), "{changed:?}");
}

#[test]
fn a_subnet_that_is_claimed_does_not_matter() {
    let mut lab = lab(limited(10, 5, 0));
    let queries = (0..100)
        .map(|n| {
            let ecs = vec![0, 1, 24, 0, 10, 2, n];
            message("vod.example.com", IN, A, Some(&[(ECS, ecs)]))
        })
        .collect();
    let (changed, _) = flood(&mut lab, FLOODER, queries);
    assert!(changed.contains(&(DnsAnswer, 5)), "{changed:?}");
    assert!(changed.contains(&(DropRateLimit, 95)), "{changed:?}");
}

#[test]
fn good_cookies_and_the_allow_list_are_exempt_and_bad_ones_get_a_good_one() {
    let mut lab = lab(limited(10, 5, 2));
    flood(&mut lab, FLOODER, same("www.example.com", 100));
    // In place of the empty reply: BADCOOKIE with a cookie, at the rate of the slip.
    let with = |cookie: &[u8], count| {
        vec![message("www.example.com", IN, A, Some(&[(COOKIE, cookie.to_vec())])); count]
    };
    let (changed, replies) = flood(&mut lab, FLOODER, with(&CLIENT_COOKIE, 10));
    assert!(changed.contains(&(DnsBadcookie, 5)), "{changed:?}");
    assert!(changed.contains(&(DropRateLimit, 5)), "{changed:?}");
    assert_eq!((replies[0].rcode, replies[0].counts), (23, [1, 0, 0, 1]));
    let given = replies[0].option(COOKIE).unwrap().to_vec();
    let before = lab.counters();
    let (changed, _) = flood(&mut lab, FLOODER, with(&given, 64));
    assert!(changed.contains(&(DnsAnswer, 64)), "{changed:?}");
    // The cookie is good for that address alone.
    let (changed, _) = flood(&mut lab, [198, 51, 100, 8], with(&given, 10));
    assert!(changed.contains(&(DnsBadcookie, 5)), "{changed:?}");
    let (changed, _) = flood(&mut lab, [203, 0, 113, 200], same("www.example.com", 64));
    assert!(changed.contains(&(DnsAnswer, 64)), "{changed:?}");
    let exempt = lab.counters().get(RateLimitExempt) - before.get(RateLimitExempt);
    assert_eq!(exempt, 128);
}

#[test]
fn limits_come_and_go_with_a_reload() {
    let mut lab = lab(limited(10, 5, 0));
    let (changed, _) = flood(&mut lab, FLOODER, same("www.example.com", 20));
    assert!(changed.contains(&(DnsAnswer, 5)), "{changed:?}");
    lab.publish(config());
    lab.settle();
    let (changed, _) = flood(&mut lab, FLOODER, same("www.example.com", 20));
    assert!(changed.contains(&(DnsAnswer, 20)), "{changed:?}");
    lab.publish(limited(1000, 15, 0));
    lab.settle();
    let (changed, _) = flood(&mut lab, HONEST, same("www.example.com", 20));
    assert!(changed.contains(&(DnsAnswer, 15)), "{changed:?}");
}

#[test]
fn nothing_is_allocated_under_a_flood() {
    let mut lab = lab(limited(10, 5, 2));
    for frame in random("example.com", 0..30) {
        assert!(lab.wires[0].inject(&frames::query(false, 0, &frame)));
        let ecs = [
            (COOKIE, CLIENT_COOKIE.to_vec()),
            (ECS, vec![0, 1, 24, 0, 10, 2, 3]),
        ];
        let cookie = message("vod.example.com", IN, A, Some(&ecs));
        assert!(lab.wires[0].inject(&frames::query(true, 0, &cookie)));
        let identity = message("id.server", CH, TXT, Some(&ecs));
        assert!(lab.wires[0].inject(&frames::query(false, 1, &identity)));
    }
    let spent = measure(|| {
        while lab.poll() > 0 {
            lab.housekeep();
        }
    });
    assert_eq!((spent.count_total, spent.count_current), (0, 0));
    let counters = lab.counters();
    for counter in [DropRateLimit, DnsSlipped, DnsBadcookie, DnsIdentity, DnsNxdomain] {
        assert!(counters.get(counter) > 0, "no {counter:?}");
    }
}

#[test]
fn under_a_limit_that_nobody_reaches_every_reply_is_the_same() {
    let with = |config: Config| {
        let mut lab = lab(config);
        let mut sent = Vec::new();
        for frames in crate::no_alloc::every_kind().chunks(32) {
            sent.push(lab.exchange(frames));
        }
        for (name, _) in NAMES {
            let options = [(COOKIE, CLIENT_COOKIE.to_vec()), (ECS, vec![0, 1, 16, 0, 10, 1])];
            let query = message(name, IN, A, Some(&options));
            sent.push(lab.exchange(&[frames::query(false, 0, &query)]));
        }
        sent
    };
    assert!(with(config()) == with(limited(1_000_000, 10_000_000, 2)));
}
