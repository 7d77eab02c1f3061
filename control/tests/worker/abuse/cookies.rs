//! Cookies: the RFC's own numbers through a worker, and what may be wrong with them.

use super::*;

#[test]
fn every_reply_carries_the_server_cookie_of_the_rfc() {
    let mut lab = lab(config());
    // Appendix A.1: a new one; and the same comes back as it was for half an hour.
    let learned = cookie(0x0100_0000_5cf7_9f11_1f81_30c3_eee2_9480);
    for (name, rcode) in NAMES {
        let first = ask_with_cookie(&mut lab, name, &CLIENT_COOKIE);
        assert_eq!(
            (first.rcode, first.option(COOKIE)),
            (rcode, Some(&learned[..])),
            "{name}"
        );
    }
    lab.wait(1799 * SECOND);
    for (name, rcode) in NAMES {
        let again = ask_with_cookie(&mut lab, name, &learned);
        assert_eq!(
            (again.rcode, again.option(COOKIE)),
            (rcode, Some(&learned[..])),
            "{name}"
        );
    }
    // Appendix A.2: renewed after 40 minutes.
    lab.set_clock(1_559_734_385);
    let renewed = cookie(0x0100_0000_5cf7_a871_d4a5_64a1_442a_ca77);
    for (name, rcode) in NAMES {
        let later = ask_with_cookie(&mut lab, name, &learned);
        assert_eq!(
            (later.rcode, later.option(COOKIE)),
            (rcode, Some(&renewed[..])),
            "{name}"
        );
    }
}

#[test]
fn cookies_over_ipv6_are_of_the_ipv6_address() {
    let mut lab = lab(config());
    let query = message(
        "vod.example.com",
        IN,
        A,
        Some(&[(COOKIE, CLIENT_COOKIE.to_vec())]),
    );
    let sent = lab.exchange(&[frames::query(true, 1, &query)]);
    let want =
        config()
            .dns
            .cookies
            .secrets
            .unwrap()
            .make(CLIENT_COOKIE, Address::V6(frames::CLIENT_V6), NOW as u32);
    assert_eq!(reply(&sent[0]).option(COOKIE), Some(&want[..]));
}

#[test]
fn no_cookie_is_answered_without_one_and_without_edns_there_is_no_room_for_any() {
    let mut lab = lab(config());
    let plain = ask(&mut lab, &message("www.example.com", IN, A, Some(&[])));
    assert_eq!((plain.options.len(), plain.counts), (0, [1, 2, 0, 1]));
    let none = ask(&mut lab, &message("www.example.com", IN, A, None));
    assert_eq!(none.counts, [1, 2, 0, 0]);
}

#[test]
fn lengths_that_rfc_7873_forbids_are_malformed() {
    let mut lab = lab(config());
    for len in 0..=48 {
        let asked = ask_with_cookie(&mut lab, "vod.example.com", &vec![0x24; len]);
        let good = len == 8 || (16..=40).contains(&len);
        assert_eq!(asked.rcode, if good { 0 } else { 1 }, "{len}");
        // What is no cookie of ours gets one.
        assert_eq!(asked.option(COOKIE).map(<[u8]>::len), good.then_some(24), "{len}");
    }
}

#[test]
fn all_options_come_together_and_fit() {
    let mut lab = lab(config());
    let ecs = vec![0, 1, 24, 0, 10, 1, 2];
    for name in ["vod.example.com", "alias.example.com", "big.example.com"] {
        let options = [
            (ECS, ecs.clone()),
            (COOKIE, CLIENT_COOKIE.to_vec()),
            (NSID, vec![]),
            (12, vec![0; 60]),
            (COOKIE, vec![9; 8]),
        ];
        let asked = ask(&mut lab, &message(name, IN, A, Some(&options)));
        let mut codes: Vec<u16> = asked.options.iter().map(|(code, _)| *code).collect();
        codes.sort();
        assert_eq!(codes, [NSID, ECS, COOKIE], "{name}");
        // The first of two cookies counts, and it is the resolver's, not the subnet's.
        let want = cookie(0x0100_0000_5cf7_9f11_1f81_30c3_eee2_9480);
        assert_eq!(asked.option(COOKIE), Some(&want[..]), "{name}");
        assert_eq!(asked.option(NSID), Some(&b"edge"[..]));
        assert!(asked.bytes.len() <= 1232);
    }
    // At each size that the client may accept: whole record sets or TC, and never longer.
    for size in (512..1100u16).step_by(7) {
        let mut query = message(
            "big.example.com",
            IN,
            A,
            Some(&[(COOKIE, CLIENT_COOKIE.to_vec())]),
        );
        let at = query.len() - 20;
        query[at..at + 2].copy_from_slice(&size.to_be_bytes());
        let asked = ask(&mut lab, &query);
        assert!(
            asked.bytes.len() <= size as usize,
            "{size}: {}",
            asked.bytes.len()
        );
        assert_eq!(asked.option(COOKIE).map(<[u8]>::len), Some(24), "{size}");
        assert_eq!(asked.counts[1], if asked.tc { 0 } else { 60 }, "{size}");
    }
}

#[test]
fn options_that_are_none_of_ours_are_ignored() {
    let mut lab = lab(config());
    // EXPIRE (RFC 7314), padding (RFC 7830), keepalive (RFC 7828) and one of the private range, some with data.
    for (code, data) in [
        (9, vec![]),
        (12, vec![0; 90]),
        (11, vec![]),
        (65_001, vec![7; 300]),
    ] {
        let asked = ask(
            &mut lab,
            &message("vod.example.com", IN, A, Some(&[(code, data)])),
        );
        assert_eq!(
            (asked.rcode, asked.counts, asked.options.len()),
            (0, [1, 2, 0, 1], 0),
            "{code}"
        );
    }
    // NSID is asked for without data (RFC 5001 section 2.1); with some it is given all the same.
    let asked = ask(
        &mut lab,
        &message("vod.example.com", IN, A, Some(&[(NSID, vec![1, 2, 3])])),
    );
    assert_eq!(asked.options, [(NSID, b"edge".to_vec())]);
}

#[test]
fn a_query_for_a_cookie_alone() {
    // RFC 7873 section 5.4: no question, OPT with COOKIE.
    let alone = |data: &[u8]| {
        let mut message = vec![0x12, 0x34, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
        message.extend(opt(Some(&[(COOKIE, data.to_vec())])));
        message
    };
    let mut lab = lab(config());
    let learned = cookie(0x0100_0000_5cf7_9f11_1f81_30c3_eee2_9480);
    for (data, rcode) in [
        (&CLIENT_COOKIE[..], 0),
        (&learned, 0),
        (&cookie(0x0100_0000_5cf7_9f11_1f81_30c3_eee2_9481), 23),
    ] {
        let asked = ask(&mut lab, &alone(data));
        assert_eq!((asked.rcode, asked.counts), (rcode, [0, 0, 0, 1]));
        assert_eq!(asked.option(COOKIE), Some(&learned[..]));
    }
    assert_eq!(ask(&mut lab, &alone(&[1; 9])).rcode, 1);
    // Without a cookie, or with records that are none of it, it is malformed.
    assert_eq!(
        ask(&mut lab, &[0x12, 0x34, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]).rcode,
        1
    );
    let mut config = config();
    config.dns.cookies.mode = CookieMode::Off;
    let mut off = Lab::new(config);
    let asked = ask(&mut off, &alone(&CLIENT_COOKIE));
    assert_eq!((asked.rcode, asked.option(COOKIE)), (1, None));
    let asked = ask_with_cookie(&mut off, "vod.example.com", &CLIENT_COOKIE);
    assert_eq!((asked.rcode, asked.option(COOKIE)), (0, None));
}

#[test]
fn where_cookies_are_required_a_client_gets_one_before_it_gets_an_answer() {
    let mut config = config();
    config.dns.cookies.mode = CookieMode::Require;
    let mut lab = lab(config);
    for (name, rcode) in NAMES {
        let first = ask_with_cookie(&mut lab, name, &CLIENT_COOKIE);
        assert_eq!((first.rcode, first.counts), (23, [1, 0, 0, 1]), "{name}");
        let given = first.option(COOKIE).unwrap().to_vec();
        let second = ask_with_cookie(&mut lab, name, &given);
        assert_eq!(second.rcode, rcode, "{name}");
        // Who knows nothing of cookies is not shut out.
        assert_eq!(
            ask(&mut lab, &message(name, IN, A, Some(&[]))).rcode,
            rcode,
            "{name}"
        );
    }
    assert_eq!(lab.counters().get(DnsBadcookie), NAMES.len() as u64);
}

#[test]
fn a_rollover_by_reload_loses_no_client() {
    let mut lab = lab(config());
    let learned = ask_with_cookie(&mut lab, "vod.example.com", &CLIENT_COOKIE);
    let learned = learned.option(COOKIE).unwrap().to_vec();
    let mut next = config();
    next.dns.cookies.mode = CookieMode::Require;
    next.dns.cookies.secrets = Some(Secrets {
        current: secret(7),
        other: Some(secret(SECRET)),
    });
    lab.publish(next.clone());
    lab.settle();
    let renewed = ask_with_cookie(&mut lab, "vod.example.com", &learned);
    assert_eq!(renewed.rcode, 0, "the old secret is accepted");
    let renewed = renewed.option(COOKIE).unwrap().to_vec();
    assert_ne!(renewed, learned, "and a cookie of the new one given");
    next.dns.cookies.secrets = Some(Secrets {
        current: secret(7),
        other: None,
    });
    lab.publish(next);
    lab.settle();
    assert_eq!(ask_with_cookie(&mut lab, "vod.example.com", &renewed).rcode, 0);
    assert_eq!(ask_with_cookie(&mut lab, "vod.example.com", &learned).rcode, 23);
}
