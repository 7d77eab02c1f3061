//! Regions that fail by degrees: brown-outs seen before an outage, answers that move and come back by themselves, and who is
//! told. Overrides, and what outlives a restart. Needs root.
//!
//! The world of `configs/demo.toml`, with a real nginx as the origin of seoul-kt.

use serde_json::Value;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;
use windrose_tests::client::dig;
use windrose_tests::laws;
use windrose_tests::nginx::{Errors, Nginx};
use windrose_tests::origin::Origin;
use windrose_tests::process::eventually;
use windrose_tests::world::{Kind, World};

/// A test's patience on a busy machine.
const LONG: Duration = Duration::from_secs(60);
const CHECK: &str = "interval = \"500ms\", timeout = \"400ms\", fall = 1, rise = 2 }";
const KT: &str = "seoul-kt/198.51.100.11";

fn answer(world: &World, name: &str) -> Vec<IpAddr> {
    let kt = &world.isps[0];
    dig(&kt.host, kt.server(false), &format!("{name} A"))
        .unwrap()
        .addresses()
}

fn member(world: &World, site: usize) -> IpAddr {
    world.sites[site].ipv4.into()
}

/// Waits until KT's users are sent to `site` alone.
fn moves_to(world: &World, site: usize) -> Duration {
    let wanted = vec![member(world, site)];
    eventually(world.sites[site].name, LONG, || {
        Ok(answer(world, "vod.example.com") == wanted)
    })
    .unwrap()
}

/// What the status says of a member of `vod.example.com`.
fn status(world: &mut World, address: &str) -> Value {
    let status = world.appliance().unwrap().status().unwrap();
    let members = status["services"][0]["members"].as_array().unwrap();
    let found = members.iter().find(|member| member["address"] == address);
    found.unwrap().clone()
}

/// The world with nginx at seoul-kt, a receiver of webhooks, and checks by `rules`.
fn browned(rules: &str) -> (World, Nginx, Origin) {
    let mut world = World::build(1).unwrap();
    world.sites[0].origin.crash().unwrap();
    let site = &world.sites[0];
    let listen = [
        SocketAddr::from((site.ipv4, 8080)),
        SocketAddr::from((site.ipv6, 8080)),
    ];
    let nginx = Nginx::start(&site.host, &world.lab.folder().join("nginx"), &listen).unwrap();
    let hook = Origin::start(&world.host, "hook", &["127.0.0.1:9000".parse().unwrap()]).unwrap();
    let alert = "[[alert]]\nurl = \"http://127.0.0.1:9000/hook\"\n";
    let config = world
        .config(Kind::AfPacket, 1, |text| {
            let check = format!("interval = \"300ms\", timeout = \"300ms\", fall = 5, rise = 2, {rules} }}");
            format!("{}{alert}", text.replace(CHECK, &check))
        })
        .unwrap();
    world.start(&config).unwrap();
    (world, nginx, hook)
}

/// The events of these kinds about nginx and about `vod`'s A records, as kind and what was done.
fn told(hook: &Origin, kinds: &[&str]) -> Vec<(String, String)> {
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let posted = hook.posted().unwrap();
    let ours = posted.iter().filter(|event| {
        let kt = event["subject"] == KT;
        let vod = event["subject"] == "vod.example.com"
            && event["details"]["records"] == "A"
            && event["details"]["clients"] == "clients of KT";
        (kt || vod) && kinds.iter().any(|kind| event["event"] == *kind)
    });
    ours.map(|event| (text(&event["event"]), text(&event["done"])))
        .collect()
}

#[test]
fn a_failing_region_is_left_before_it_is_down_and_comes_back_by_a_ramp() {
    let rules = "brownout = { window = 20, shed_above = \"10%\", down_above = \"50%\" }, slow_start = \"4s\"";
    let (mut world, nginx, hook) = browned(rules);
    moves_to(&world, 0);
    assert_eq!(status(&mut world, "198.51.100.11")["share"], 16);

    // It answers, and always with 503: connections would not show it.
    nginx.fail(Errors::All).unwrap();
    let took = moves_to(&world, 1);
    println!("errors alone: answers moved after {took:?} (checks every 300 ms, window 20)");
    // Answers are shed before it is down.
    eventually("it is down by its errors", LONG, || {
        let now = status(&mut world, "198.51.100.11");
        Ok(now["state"] == "down" && now["given"] == false)
    })
    .unwrap();
    assert_eq!(answer(&world, "vod.example.com"), [member(&world, 1)]);
    let now = status(&mut world, "198.51.100.11");
    assert!(
        now["remark"].as_str().unwrap().starts_with("brown-out: "),
        "{now}"
    );

    nginx.fail(Errors::None).unwrap();
    moves_to(&world, 0);
    let share = status(&mut world, "198.51.100.11")["share"].as_u64().unwrap();
    println!("share {share}/16 just after its return");
    eventually("the whole share is back", LONG, || {
        Ok(status(&mut world, "198.51.100.11")["share"] == 16)
    })
    .unwrap();
    // The same to the receiver of the webhook: what was done, in order, with no hand.
    let kinds = ["member-down", "failover", "member-up", "failback", "member-whole"];
    let expected = [
        ("member-down", "it is not given any more"),
        (
            "failover",
            "A answers for clients of KT are of seoul-lg instead of seoul-kt",
        ),
        ("member-up", "it is given again, with 1/16 of its share at first"),
        (
            "failback",
            "A answers for clients of KT are of seoul-kt instead of seoul-lg",
        ),
        ("member-whole", "it has its whole share"),
    ];
    // A busy machine may be late with a check now and then, which is told as well.
    eventually("the webhook was told of all of it, in order", LONG, || {
        let mut told = told(&hook, &kinds).into_iter();
        let all = expected
            .iter()
            .all(|(kind, done)| told.any(|t| t == ((*kind).into(), (*done).into())));
        Ok(all)
    })
    .unwrap_or_else(|error| panic!("{error}: {:#?}", told(&hook, &kinds)));
    // It was degraded before it was down, and said why.
    let posted = hook.posted().unwrap();
    let of_kt = |kind: &str| {
        let is = |event: &&Value| event["event"] == kind && event["subject"] == KT;
        posted
            .iter()
            .find(is)
            .unwrap_or_else(|| panic!("no {kind}"))
            .clone()
    };
    let (degraded, down) = (of_kt("member-degraded"), of_kt("member-down"));
    assert!(degraded["number"].as_u64() < down["number"].as_u64());
    let seen = down["seen"].as_str().unwrap();
    assert!(
        seen.starts_with("brown-out: ") && seen.contains("status 503"),
        "{seen}"
    );
    // And on the command line.
    let listed = world.appliance().unwrap().ask(&["events"]).unwrap();
    assert!(
        listed.contains("failback") && listed.contains("webhook http://127.0.0.1:9000: "),
        "{listed}"
    );
    laws::hold_after_stop(&mut world).unwrap();
}

#[test]
fn a_third_of_errors_is_shed_in_proportion() {
    let rules = "brownout = { window = 50, shed_above = \"10%\", down_above = \"60%\" }, slow_start = \"0s\"";
    let (mut world, nginx, hook) = browned(rules);
    moves_to(&world, 0);
    nginx.fail(Errors::Third).unwrap();
    eventually("some is shed", LONG, || {
        Ok(status(&mut world, "198.51.100.11")["share"] != 16)
    })
    .unwrap();
    // Another window of checks, then the mean over one: 16 * (60 - 30) / (60 - 10) = 9.6 sixteenths.
    std::thread::sleep(Duration::from_secs(15));
    let (mut shares, mut given) = (Vec::new(), 0);
    for _ in 0..40 {
        let now = status(&mut world, "198.51.100.11");
        assert_eq!(now["given"], true, "{now}");
        shares.push(now["share"].as_u64().unwrap());
        for _ in 0..5 {
            given += usize::from(answer(&world, "vod.example.com") == [member(&world, 0)]);
        }
    }
    let mean = shares.iter().sum::<u64>() as f64 / shares.len() as f64;
    println!("mean share {mean:.1}/16 at 30 % of errors, given in {given} of 200 answers: {shares:?}");
    // The rate over 100 checks has a standard deviation of 4.6 %, which is 1.5 sixteenths.
    assert!((4.5..14.0).contains(&mean), "{mean}");
    // Answers follow: 200 draws at a half have a standard deviation of 3.5 %, and shares move between the looks.
    let rate = given as f64 / 200.0;
    assert!((rate - mean / 16.0).abs() < 0.2, "{rate}, share {mean}/16");
    assert!(told(&hook, &["member-down", "failover"]).is_empty());
    nginx.fail(Errors::None).unwrap();
    eventually("it has its whole share again", LONG, || {
        Ok(status(&mut world, "198.51.100.11")["share"] == 16)
    })
    .unwrap();
    laws::hold_after_stop(&mut world).unwrap();
}

#[test]
fn people_override_health_and_what_they_said_outlives_a_restart() {
    let mut world = World::build(1).unwrap();
    let state = world.lab.folder().join("state");
    let config = world
        .config(Kind::AfPacket, 1, |text| {
            let name = "name = \"demo\"\n";
            text.replacen(name, &format!("{name}state = \"{}\"\n", state.display()), 1)
        })
        .unwrap();
    world.start(&config).unwrap();
    moves_to(&world, 0);
    let admin = |world: &mut World, args: &[&str]| {
        let argv: Vec<&str> = ["admin"].iter().chain(args).copied().collect();
        world.appliance().unwrap().ask(&argv)
    };
    let said = admin(&mut world, &["down", "seoul-kt/198.*", "--comment", "works"]).unwrap();
    assert_eq!(said, "seoul-kt/198.* down (works): 1 members\n");
    moves_to(&world, 1);
    let listed = world.appliance().unwrap().ask(&["status"]).unwrap();
    assert!(
        listed.contains("OVERRIDE seoul-kt/198.* down (works)"),
        "{listed}"
    );
    let explain = ["explain", "vod.example.com", "A", "--from", "192.0.2.10"];
    let why = world.appliance().unwrap().ask(&explain).unwrap();
    assert!(
        why.contains("198.51.100.11 down [override seoul-kt/198.* down (works)]"),
        "{why}"
    );
    // Over a restart.
    laws::hold_after_stop(&mut world).unwrap();
    world.start(&config).unwrap();
    moves_to(&world, 1);
    // The last one counts; a dead member is given when people say so.
    world.sites[0].origin.crash().unwrap();
    admin(&mut world, &["up", "seoul-kt", "--for", "3s"]).unwrap();
    moves_to(&world, 0);
    // Its time is over: the one before counts again.
    moves_to(&world, 1);
    let events = world.appliance().unwrap().ask(&["events", "--json"]).unwrap();
    assert!(events.contains("override-expired"), "{events}");
    world.sites[0].origin.restart().unwrap();
    assert_eq!(
        admin(&mut world, &["clear", "seoul-kt/198.*"]).unwrap(),
        "cleared: seoul-kt/198.* down (works)\n"
    );
    moves_to(&world, 0);
    let error = admin(&mut world, &["clear", "seoul-kt/198.*"])
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("code 1") && error.contains("no override has the glob"),
        "{error}"
    );
    assert_eq!(admin(&mut world, &["list"]).unwrap(), "no overrides\n");
    laws::hold_after_stop(&mut world).unwrap();
}

#[test]
fn a_start_serves_what_was_known_last_until_checks_complete() {
    let mut world = World::build(1).unwrap();
    let state = world.lab.folder().join("state");
    let with_state = |text: String| {
        let name = "name = \"demo\"\n";
        text.replacen(name, &format!("{name}state = \"{}\"\n", state.display()), 1)
    };
    let config = world.config(Kind::AfPacket, 1, with_state).unwrap();
    world.sites[0].origin.crash().unwrap();
    world.start(&config).unwrap();
    moves_to(&world, 1);
    laws::hold_after_stop(&mut world).unwrap();

    // All hang, and checks take longer than a start waits for them.
    for site in &mut world.sites[1..] {
        site.origin.hang().unwrap();
    }
    world.sites[0].origin.restart().unwrap();
    world.sites[0].origin.hang().unwrap();
    let slow = "interval = \"60s\", timeout = \"40s\", fall = 1, rise = 1 }";
    let config = world
        .config(Kind::AfPacket, 1, |text| with_state(text).replace(CHECK, slow))
        .unwrap();
    world.start(&config).unwrap();
    // Never all up: what was down is down.
    let (down, up) = (
        status(&mut world, "198.51.100.11"),
        status(&mut world, "198.51.100.75"),
    );
    assert_eq!(
        (&down["state"], &down["remembered"]),
        (&"down".into(), &true.into()),
        "{down}"
    );
    assert_eq!(
        (&up["state"], &up["remembered"]),
        (&"up".into(), &true.into()),
        "{up}"
    );
    assert!(up["last_check_age_s"].as_f64().unwrap() > 5.0, "{up}");
    assert_eq!(answer(&world, "vod.example.com"), [member(&world, 1)]);
    for _ in 0..8 {
        assert!(!answer(&world, "live.example.com").contains(&member(&world, 0)));
    }
    // The first check that completes is what counts.
    world.sites[0].origin.resume().unwrap();
    moves_to(&world, 0);
    assert_eq!(status(&mut world, "198.51.100.11")["remembered"], false);
    laws::hold_after_stop(&mut world).unwrap();
}
