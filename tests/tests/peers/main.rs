//! Windrose beside NSD, Knot and gdnsd: the same zones, the same thousands of questions, and every difference has a rule. And in front
//! of it real resolvers and clients. Needs root, and the servers' packages of packages.apt.

mod queries;
mod resolve;
mod rules;

use anyhow::{Result, ensure};
use queries::{Asked, Draw};
use rules::{Difference, RULES};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::IpAddr;
use windrose_tests::appliance::{Appliance, one_port};
use windrose_tests::datagram::{Asker, Came};
use windrose_tests::lab::{Host, Lab};
use windrose_tests::laws;
use windrose_tests::libraries;
use windrose_tests::message::{Reply, hex, name_text};
use windrose_tests::peer::{Kind, Peer};

/// Questions over UDP, and over TCP.
const QUESTIONS: [usize; 2] = [4000, 1000];
const ZONES: [&str; 2] = ["example.com", "example.net"];
const CLIENT: &str = "192.0.2.10";
const SERVICE: &str = "192.0.2.53";

/// The appliance with both zones, and a client. Fields drop in order.
struct World {
    appliance: Option<Appliance>,
    client: Host,
    lab: Lab,
}

/// Zones with record sets that no datagram holds; `zone` appended to that of example.com, and `more` to the configuration.
fn world(zone: &str, more: &str) -> Result<World> {
    let mut lab = Lab::new()?;
    let (app, client) = (lab.host("app")?, lab.host("client")?);
    lab.link(&app, "port0", &client, "eth0")?;
    app.sysctl("net.ipv6.conf.port0.disable_ipv6", "1")?;
    client.address("eth0", &format!("{CLIENT}/24"))?;
    client.address("eth0", "2001:db8:1::10/64")?;
    let mut com = include_str!("example.com.zone").to_owned();
    let long = |letter: &str, count: usize| format!(" \"{}\"", letter.repeat(200)).repeat(count);
    let _ = write!(com, "big IN TXT{}\nhuge IN TXT{}\n", long("x", 4), long("y", 9));
    for n in 0..40 {
        let _ = writeln!(com, "many IN A 198.18.0.{n}");
    }
    lab.write("example.com.zone", &(com + zone))?;
    lab.write("example.net.zone", include_str!("example.net.zone"))?;
    let socket = lab.folder().join("admin.sock");
    let mut config = one_port("net_af_packet0,iface=port0", &socket);
    for zone in ZONES {
        let _ = write!(config, "\n[[zone]]\nname = \"{zone}\"\nfile = \"{zone}.zone\"\n");
    }
    let config = lab.write("windrose.toml", &(config + more))?;
    let appliance = Some(Appliance::start(&app, &config, &socket)?);
    Ok(World {
        appliance,
        client,
        lab,
    })
}

/// A way to a server of the client's own loopback: its address is ours too.
fn asker(world: &World, server: IpAddr, tcp: bool) -> Result<Asker> {
    let known = "example.com.";
    let local = if server.is_loopback() || server.to_string().starts_with("10.53.") {
        server
    } else {
        CLIENT.parse()?
    };
    match tcp {
        true => Ok(Asker::tcp(&world.client, server, known)),
        false => Asker::udp(&world.client, local, server, known),
    }
}

/// A reply of which `holds`.
fn reply(came: Came, holds: impl Fn(&[u8], &Reply) -> Result<()>) -> Option<Reply> {
    match came {
        Came::Reply(bytes) | Came::Last(bytes) => {
            let read = Reply::read(&bytes).and_then(|reply| holds(&bytes, &reply).map(|()| reply));
            Some(read.unwrap_or_else(|error| panic!("{error:#}: {}", hex(&bytes))))
        }
        Came::Nothing | Came::End => None,
    }
}

/// A reply as it is compared: letters of one case, records sorted, of OPT only that it is there, DO, and not what explains an error.
fn normal(reply: &Option<Reply>) -> String {
    let Some(reply) = reply else {
        return "nothing".into();
    };
    let line = reply.line().unwrap().to_lowercase();
    let Some((before, opt)) = line.split_once("; opt ") else {
        return line;
    };
    let words = opt.split(' ').skip(1).filter(|word| !word.starts_with("ede="));
    format!(
        "{before}; opt{}",
        words.map(|word| format!(" {word}")).collect::<String>()
    )
}

#[test]
fn every_difference_to_nsd_knot_and_gdnsd_has_a_rule() {
    let mut world = world("", "").unwrap();
    let peers: Vec<Peer> = [
        (Kind::Nsd, "10.53.0.1"),
        (Kind::Knot, "10.53.0.2"),
        (Kind::Gdnsd, "10.53.0.3"),
    ]
    .into_iter()
    .map(|(kind, address)| {
        Peer::authority(&world.lab, &world.client, kind, address.parse().unwrap(), &ZONES).unwrap()
    })
    .collect();
    let mut draw = Draw(0x5eed_0bad_cafe_f00d);
    let (mut used, mut unexplained) = (BTreeMap::new(), Vec::new());
    let (mut same, mut asked) = (0u32, 0u32);
    for (tcp, count) in [false, true].into_iter().zip(QUESTIONS) {
        let mut ours = asker(&world, SERVICE.parse().unwrap(), tcp).unwrap();
        let mut theirs: Vec<Asker> = peers
            .iter()
            .map(|peer| asker(&world, peer.address, tcp).unwrap())
            .collect();
        for n in 0..count {
            let question: Asked = draw.question();
            let message = question.query.message(u16::try_from(n).unwrap());
            let own = reply(ours.ask(&message).unwrap(), |bytes, reply| {
                let limit = if tcp { 65_535 } else { question.query.udp_limit() };
                ensure!(
                    bytes.len() <= limit,
                    "{} bytes where {limit} are allowed",
                    bytes.len()
                );
                libraries::both_read(bytes, reply)
            });
            for (peer, their) in peers.iter().zip(&mut theirs) {
                asked += 1;
                let came = their.ask(&message);
                let came = came.unwrap_or_else(|error| panic!("{:?}: {error:#}: {question:?}", peer.kind));
                let other = reply(came, |_, _| Ok(()));
                if normal(&own) == normal(&other) {
                    same += 1;
                    continue;
                }
                let difference = Difference {
                    peer: peer.kind,
                    tcp,
                    asked: &question,
                    ours: own.as_ref(),
                    theirs: other.as_ref(),
                };
                match RULES.iter().find(|rule| rule.explains(&difference)) {
                    Some(rule) => *used.entry(rule.because).or_insert(0u32) += 1,
                    None => unexplained.push(format!(
                        "{:?} {} {:?} {} TYPE{} {}\n  ours   {}\n  theirs {}",
                        peer.kind,
                        if tcp { "TCP" } else { "UDP" },
                        question.twist,
                        name_text(&question.name),
                        question.rtype,
                        hex(&message),
                        normal(&own),
                        normal(&other)
                    )),
                }
            }
        }
    }
    drop(peers);
    laws::hold(&world.appliance.take().unwrap().stop().unwrap()).unwrap();
    println!("{asked} compared, {same} the same; {used:#?}");
    let (count, first) = (
        unexplained.len(),
        unexplained.iter().take(40).cloned().collect::<Vec<_>>(),
    );
    assert!(
        unexplained.is_empty(),
        "{count} differences have no rule:\n{}",
        first.join("\n")
    );
    let idle: Vec<_> = RULES
        .iter()
        .filter(|rule| !rule.sometimes && !used.contains_key(rule.because))
        .map(|rule| rule.because)
        .collect();
    assert!(idle.is_empty(), "these rules explain nothing any more: {idle:#?}");
    assert!(same > asked / 2, "{same} of {asked} are the same");
}
