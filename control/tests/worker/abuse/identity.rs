//! What an appliance says of itself, and why it does not answer.

use super::*;

#[test]
fn class_ch_tells_what_is_configured_and_nothing_else() {
    let mut config = config();
    config.dns.version = Some("windrose".into());
    let mut lab = lab(config);
    for (name, text) in [
        ("version.bind", Some("windrose")),
        ("VERSION.Server", Some("windrose")),
        ("id.server", Some("edge")),
        ("hostname.bind", None),
        ("authors.bind", None),
        ("www.example.com", None),
    ] {
        let asked = ask(&mut lab, &message(name, CH, TXT, Some(&[(NSID, vec![])])));
        assert!(!asked.aa, "{name}");
        assert_eq!(asked.option(NSID), Some(&b"edge"[..]));
        let Some(text) = text else {
            assert_eq!((asked.rcode, asked.counts[1]), (5, 0), "{name}");
            continue;
        };
        assert_eq!((asked.rcode, asked.counts), (0, [1, 1, 0, 1]), "{name}");
        // Pointer to the question, TXT, CH, TTL 0, the string with its length (RFC 1035 section 3.3.14).
        let mut record = vec![
            0xc0,
            12,
            0,
            16,
            0,
            3,
            0,
            0,
            0,
            0,
            0,
            text.len() as u8 + 1,
            text.len() as u8,
        ];
        record.extend(text.bytes());
        let at = 12 + name.len() + 2 + 4;
        assert_eq!(asked.bytes[at..at + record.len()], record, "{name}");
    }
    for rtype in [A, 255] {
        assert_eq!(ask(&mut lab, &message("version.bind", CH, rtype, None)).rcode, 5);
    }
    assert_eq!(ask(&mut lab, &message("version.bind", IN, TXT, None)).rcode, 5);
    let mut all = example(192);
    all.dns.hostname = Some("h".repeat(255));
    let mut lab = Lab::new(all);
    let asked = ask(&mut lab, &message("hostname.bind", CH, TXT, None));
    assert_eq!((asked.rcode, asked.counts), (0, [1, 1, 0, 0]));
}

#[test]
fn errors_are_explained_to_those_who_speak_edns() {
    let mut lab = lab(config());
    let mut explained = |query: &[u8]| {
        let asked = ask(&mut lab, query);
        let code = asked
            .option(EXTENDED_ERROR)
            .map(|data| u16::from_be_bytes([data[0], data[1]]));
        (asked.rcode, code)
    };
    assert_eq!(
        explained(&message("example.net", IN, A, Some(&[]))),
        (5, Some(20))
    );
    assert_eq!(explained(&message("example.net", IN, A, None)), (5, None));
    assert_eq!(
        explained(&message("www.example.com", CH, A, Some(&[]))),
        (5, Some(21))
    );
    assert_eq!(
        explained(&message("www.example.com", IN, 252, Some(&[]))),
        (5, Some(21))
    );
    assert_eq!(
        explained(&message("www.example.com", IN, A, Some(&[]))),
        (0, None)
    );
    assert_eq!(
        explained(&message("none.example.com", IN, A, Some(&[]))),
        (3, None)
    );
    // Opcode 2.
    let mut status = message("www.example.com", IN, A, Some(&[]));
    status[2] = 0x10;
    assert_eq!(explained(&status), (4, Some(21)));
    // A malformed message explains nothing.
    assert_eq!(
        explained(&message("www.example.com", IN, A, Some(&[(COOKIE, vec![1])]))),
        (1, None)
    );
}

#[test]
fn a_service_without_a_live_member_says_so() {
    for (rule, answers, code) in [
        (AllDown::Open, 2, 0),
        (AllDown::Closed, 0, 23),
        (AllDown::Fixed(vec!["192.0.2.9".parse().unwrap()]), 1, 0),
    ] {
        let mut config = config();
        config.services[0].when_all_down = rule.clone();
        let mut lab = Lab::down(config);
        let options = [(ECS, vec![0, 1, 16, 0, 10, 1]), (COOKIE, CLIENT_COOKIE.to_vec())];
        let asked = ask(&mut lab, &message("vod.example.com", IN, A, Some(&options)));
        assert_eq!((asked.rcode, asked.counts[1]), (0, answers), "{rule:?}");
        let want = [&[0, code][..], b"no member is up"].concat();
        assert_eq!(asked.option(EXTENDED_ERROR), Some(&want[..]), "{rule:?}");
        assert_eq!(asked.options.len(), 3, "{rule:?}");
    }
}
