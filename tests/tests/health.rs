//! Origins that crash, hang and come back: how fast answers follow. Needs root.
//!
//! `configs/demo.toml`: checks every 500 ms (jitter 10 %, timeout 400 ms), fall 1, rise 2.

use std::net::IpAddr;
use std::time::{Duration, Instant};
use windrose_tests::client::dig;
use windrose_tests::laws;
use windrose_tests::process::eventually;
use windrose_tests::world::{Kind, World};

/// A test's patience on a busy machine; what is measured is reported, not asserted.
const LONG: Duration = Duration::from_secs(15);

fn answer(world: &World, isp: usize, name: &str) -> Vec<IpAddr> {
    let isp = &world.isps[isp];
    dig(&isp.host, isp.server(false), &format!("{name} A"))
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
        Ok(answer(world, 0, "vod.example.com") == wanted)
    })
    .unwrap()
}

#[test]
fn a_crash_moves_answers_and_the_rise_rule_brings_them_back() {
    let mut world = World::build(1).unwrap();
    let config = world
        .config(Kind::AfPacket, 1, |text| text.replace("rise = 2", "rise = 4"))
        .unwrap();
    world.start(&config).unwrap();
    moves_to(&world, 0);
    let start = Instant::now();
    world.sites[0].origin.crash().unwrap();
    // seoul-lg: no site in KT is up, and it is preferred over busan.
    moves_to(&world, 1);
    println!(
        "kill -9: answers moved after {:?} (checks every 500 ms)",
        start.elapsed()
    );
    // LG's users never noticed; the other service hands out the two that are up.
    assert_eq!(answer(&world, 1, "vod.example.com"), [member(&world, 1)]);
    for _ in 0..8 {
        assert!(!answer(&world, 0, "live.example.com").contains(&member(&world, 0)));
    }

    let start = Instant::now();
    world.sites[0].origin.restart().unwrap();
    moves_to(&world, 0);
    // Four successes in a row are three times 450 ms or more from the first to the last; less what the
    // first check may have been late by. One success would have been enough within 550 ms.
    let back = start.elapsed();
    println!("answers returned after {back:?} (rise 4)");
    assert!(
        back >= Duration::from_millis(800),
        "back after {back:?}: fewer than four successes"
    );
    laws::hold_after_stop(&mut world).unwrap();
}

#[test]
fn a_hang_counts_as_down() {
    let mut world = World::running(Kind::AfPacket, 1).unwrap();
    moves_to(&world, 0);
    world.sites[0].origin.hang().unwrap();
    moves_to(&world, 1);
    world.sites[1].origin.hang().unwrap();
    moves_to(&world, 2);
    world.sites[0].origin.resume().unwrap();
    moves_to(&world, 0);
    laws::hold_after_stop(&mut world).unwrap();
}

#[test]
fn when_all_are_down_each_service_does_what_it_says() {
    let mut world = World::running(Kind::AfPacket, 1).unwrap();
    moves_to(&world, 0);
    for site in 0..3 {
        world.sites[site].origin.crash().unwrap();
    }
    // closed: no address, and no NXDOMAIN either.
    let kt = &world.isps[0];
    eventually("vod is closed", LONG, || {
        let reply = dig(&kt.host, kt.server(false), "vod.example.com A")?;
        Ok(reply.status == "NOERROR" && reply.answer.is_empty())
    })
    .unwrap();
    // last-good: what was up last. The three died within one interval, so any of them may have been.
    let left = answer(&world, 0, "live.example.com");
    let members: Vec<_> = (0..3).map(|site| member(&world, site)).collect();
    assert!(
        !left.is_empty() && left.iter().all(|address| members.contains(address)),
        "{left:?}"
    );
    world.sites[2].origin.restart().unwrap();
    moves_to(&world, 2);
    laws::hold_after_stop(&mut world).unwrap();
}
