//! Services with names among their members: what is answered to which type, and that a CNAME stands alone.

use super::tests::{Lab, Reply, addresses, name, target, with_service, with_subnet};
use crate::config::model::*;
use crate::policy::slots::Target;
use dataplane::stages::dns_answer::{Client, Transport};
use domain::base::iana::{Rcode, Rtype};
use std::collections::HashMap;
use std::net::IpAddr;

const IN_ONE: Client = Client::V4([10, 1, 0, 1]);
const IN_TWO: Client = Client::V4([10, 2, 0, 1]);
const CDN: &str = "vod.example.com 30 CNAME cdn.example.net.";

/// Site 0, in ISP one, has the addresses 198.51.100.1 and .2; site 1, in ISP two, is a name.
fn mixed(change: impl FnOnce(&mut Config)) -> Config {
    with_service(|config| {
        let service = &mut config.services[0];
        service.members.retain(|m| m.site == 0);
        service.cnames = vec![CnameMember {
            name: name("cdn.example.net."),
            site: 1,
            weight: 1,
        }];
        config.zones[0]
            .rrsets
            .push(target("tovod.example.com.", 5, "vod.example.com."));
        change(config);
    })
}

#[test]
fn the_chosen_site_says_whether_the_answer_is_a_cname() {
    let mut lab = Lab::new(mixed(|_| ()));
    for rtype in [
        Rtype::A,
        Rtype::AAAA,
        Rtype::TXT,
        Rtype::CNAME,
        Rtype::HTTPS,
        Rtype::DS,
    ] {
        let r = lab.ask_from("vod.example.com.", rtype, IN_TWO);
        assert_eq!(
            (r.rcode, r.aa, &r.answer[..]),
            (Rcode::NOERROR, true, &[CDN.to_string()][..]),
            "{rtype}"
        );
        assert!(r.authority.is_empty(), "{rtype}");
        // Where addresses are chosen, all other types have nothing: no name is there to go to.
        let r = lab.ask_from("vod.example.com.", rtype, IN_ONE);
        if rtype == Rtype::A {
            assert_eq!(addresses(&r).len(), 2);
        } else {
            assert_eq!(
                (r.rcode, r.answer.len(), r.authority.len()),
                (Rcode::NOERROR, 0, 1),
                "{rtype}"
            );
        }
    }
    let r = lab.ask_from("vod.example.com.", Rtype::ANY, IN_TWO);
    assert_eq!(r.answer, ["vod.example.com 3600 HINFO \"RFC8482\" \"\""]);
}

#[test]
fn an_alias_of_such_a_service_ends_with_its_choice() {
    let mut lab = Lab::new(mixed(|_| ()));
    for rtype in [Rtype::A, Rtype::AAAA, Rtype::TXT] {
        let r = lab.ask_from("tovod.example.com.", rtype, IN_TWO);
        assert_eq!(
            r.answer,
            ["tovod.example.com 300 CNAME vod.example.com.", CDN],
            "{rtype}"
        );
    }
    let r = lab.ask_from("tovod.example.com.", Rtype::A, IN_ONE);
    assert_eq!(r.answer.len(), 3);
    let r = lab.ask_from("tovod.example.com.", Rtype::AAAA, IN_ONE);
    assert_eq!((r.answer.len(), r.authority.len()), (1, 1));
    let r = lab.ask_from("tovod.example.com.", Rtype::CNAME, IN_TWO);
    assert_eq!(r.answer.len(), 1);
}

#[test]
fn a_name_and_an_address_never_share_an_answer() {
    // Everybody chooses among two addresses and a name.
    let mut lab = Lab::new(mixed(|c| {
        c.services[0].chain = vec![Metric::Health, Metric::Static];
        c.services[0].answers = 3;
    }));
    let mut seen: HashMap<Vec<String>, u32> = HashMap::new();
    for _ in 0..300 {
        let mut answer = lab.ask("vod.example.com.", Rtype::A).answer;
        answer.sort_unstable();
        *seen.entry(answer).or_default() += 1;
    }
    let mut kinds: Vec<_> = seen.keys().map(Vec::len).collect();
    kinds.sort_unstable();
    assert_eq!(kinds, [1, 2], "{seen:?}");
    assert!(seen.contains_key(&vec![CDN.to_string()]));
}

#[test]
fn weights_hold_between_names_and_addresses() {
    let mut lab = Lab::new(mixed(|c| {
        let service = &mut c.services[0];
        service.chain = vec![Metric::Health, Metric::Static];
        (service.spread, service.answers) = (Spread::Weighted, 1);
        service.members.truncate(1);
        service.members[0].weight = 3;
    }));
    let n = 8_000;
    let cnames = (0..n)
        .filter(|_| lab.ask("vod.example.com.", Rtype::A).answer == [CDN])
        .count();
    // 2,000 expected; the standard deviation is 39.
    assert!((1_800..2_200).contains(&cnames), "{cnames}");
    // The same share for types that only the name could answer.
    let cnames = (0..n)
        .filter(|_| lab.ask("vod.example.com.", Rtype::AAAA).answer == [CDN])
        .count();
    assert!((1_800..2_200).contains(&cnames), "{cnames}");
}

#[test]
fn a_name_takes_over_when_the_addresses_are_down() {
    let check = Check {
        kind: CheckKind::Tcp,
        port: 80,
        interval: std::time::Duration::from_secs(1),
        timeout: std::time::Duration::from_secs(1),
        rise: 1,
        fall: 1,
        interface: None,
        netns: None,
        grade: crate::config::model::Grade::default(),
    };
    let config = mixed(|c| {
        c.services[0].preference = vec![(0, 200), (1, 100)];
        c.services[0].chain = vec![Metric::Health, Metric::Preference, Metric::Static];
        c.services[0].check = Some(check);
    });
    let mut lab = Lab::new(config.clone());
    assert_eq!(addresses(&lab.ask("vod.example.com.", Rtype::A)).len(), 2);
    // Checked members are down; a name has no check.
    let mut lab = Lab::with_health(config, |t: &Target| t.check.is_none());
    let r = lab.ask("vod.example.com.", Rtype::A);
    assert_eq!(r.answer, [CDN]);
}

#[test]
fn ipv6_members_and_a_name() {
    let v6 = |last: u16| IpAddr::from([0x2001, 0xdb8, 0, 0, 0, 0, 0, last]);
    // IPv6 alone at site 0: the choice is made among those.
    let mut lab = Lab::new(mixed(|c| {
        c.services[0].members.iter_mut().for_each(|m| {
            let IpAddr::V4(a) = m.address else { return };
            m.address = v6(a.octets()[3].into());
        })
    }));
    for rtype in [Rtype::A, Rtype::AAAA] {
        assert_eq!(lab.ask_from("vod.example.com.", rtype, IN_TWO).answer, [CDN]);
    }
    assert_eq!(
        lab.ask_from("vod.example.com.", Rtype::AAAA, IN_ONE).answer.len(),
        2
    );
    let r = lab.ask_from("vod.example.com.", Rtype::A, IN_ONE);
    assert_eq!((r.answer.len(), r.authority.len()), (0, 1));
    // Both families: IPv6 is drawn from its own pool once addresses are chosen.
    let mut lab = Lab::new(mixed(|c| {
        let member = Member {
            address: v6(9),
            site: 0,
            weight: 1,
        };
        c.services[0].members.push(member);
    }));
    let r = lab.ask_from("vod.example.com.", Rtype::AAAA, IN_ONE);
    assert_eq!(r.answer, ["vod.example.com 30 AAAA 2001:db8::9"]);
    assert_eq!(
        lab.ask_from("vod.example.com.", Rtype::AAAA, IN_TWO).answer,
        [CDN]
    );
}

#[test]
fn the_scope_of_a_chosen_name_is_that_of_the_choice() {
    let mut lab = Lab::new(mixed(|_| ()));
    let query = with_subnet("vod.example.com.", 1, 24, &[10, 2, 3]);
    let (bytes, outcome) = lab.raw(&query, Client::V4([203, 0, 113, 1]), Transport::Udp);
    let r = Reply::read(&bytes, outcome);
    assert_eq!(r.answer, [CDN]);
    // ECS option: code 8, length 7, family 1, source 24, scope 16, 10.2.3.
    let option = [0, 8, 0, 7, 0, 1, 24, 16, 10, 2, 3];
    assert!(bytes.windows(option.len()).any(|w| w == option), "{bytes:?}");
}

#[test]
fn a_wildcard_hands_out_names_for_what_it_covers() {
    let mut lab = Lab::new(mixed(|c| c.services[0].name = name("*.edge.example.com.")));
    let r = lab.ask_from("a.b.edge.example.com.", Rtype::A, IN_TWO);
    assert_eq!(r.answer, ["a.b.edge.example.com 30 CNAME cdn.example.net."]);
    assert_eq!(
        lab.ask_from("a.edge.example.com.", Rtype::A, IN_ONE).answer.len(),
        2
    );
    assert_eq!(lab.ask("edge.example.com.", Rtype::A).rcode, Rcode::NOERROR);
}
