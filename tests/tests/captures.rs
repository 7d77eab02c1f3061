//! Real captures replayed through a net_pcap port: each frame gets the verdict that
//! `captures/expected.tsv` says, and the replies say what they must. Needs root (DPDK memory).

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;
use windrose_tests::appliance::{Appliance, one_port};
use windrose_tests::capture::{self, Checksums, DnsFrame, Target};
use windrose_tests::lab::Lab;
use windrose_tests::laws::{self, Totals};
use windrose_tests::process::eventually;

/// What DPDK's net_pcap gives its first port ("\x02pcap\0", drivers/net/pcap).
const PCAP_MAC: [u8; 6] = [0x02, 0x70, 0x63, 0x61, 0x70, 0x00];

fn target() -> Target {
    Target {
        mac: PCAP_MAC,
        ipv4: "192.0.2.53".parse().unwrap(),
        ipv6: "2001:db8:1::53".parse().unwrap(),
        client: "2001:db8:1::10".parse().unwrap(),
    }
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("captures")
}

/// The verdict of each frame of a capture, from the table.
fn expected(file: &str) -> Vec<String> {
    let table = fs::read_to_string(folder().join("expected.tsv")).unwrap();
    let rows = table.lines().filter(|line| !line.starts_with('#'));
    let verdicts = rows.filter_map(|line| {
        let columns: Vec<_> = line.split('\t').collect();
        (columns[0] == file).then(|| columns[2].to_owned())
    });
    verdicts.collect()
}

/// What the appliance made of some frames.
struct Replay {
    totals: Totals,
    /// Replies by DNS outcome.
    outcomes: BTreeMap<String, u64>,
    sent: Vec<Vec<u8>>,
}

/// Runs the appliance on a net_pcap port that receives `frames`, until all are received; stops it.
fn replay(frames: &[Vec<u8>]) -> Replay {
    let mut lab = Lab::new().unwrap();
    let host = lab.host("app").unwrap();
    let (rx, tx) = (lab.folder().join("rx.pcap"), lab.folder().join("tx.pcap"));
    capture::write(&rx, frames).unwrap();
    let socket = lab.folder().join("admin.sock");
    let device = format!("net_pcap0,rx_pcap={},tx_pcap={}", rx.display(), tx.display());
    // The table speaks of frames that Windrose answers itself: no kernel answers TCP beside it.
    let mut config = one_port(&device, &socket) + "\n[dns.tcp]\nenabled = false\n";
    for zone in fs::read_dir(folder().join("zones"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
    {
        let name = zone.file_stem().unwrap().to_string_lossy();
        config += &format!("\n[[zone]]\nname = \"{name}\"\nfile = \"{}\"\n", zone.display());
    }
    let config = lab.write("windrose.toml", &config).unwrap();
    let appliance = Appliance::start(&host, &config, &socket).unwrap();
    let wanted = u64::try_from(frames.len()).unwrap();
    eventually("all frames are received", Duration::from_secs(20), || {
        Ok(appliance.received()? >= wanted)
    })
    .unwrap_or_else(|error| panic!("{error}\n{}", appliance.log()));
    let outcomes = appliance.metric("windrose_dns_replies_total", "outcome").unwrap();
    let totals = laws::hold(&appliance.stop().unwrap()).unwrap();
    Replay {
        totals,
        outcomes,
        sent: capture::read(&tx).unwrap(),
    }
}

/// The counters of verdicts and DNS outcomes that a list of verdicts amounts to.
fn counted(verdicts: &[String]) -> BTreeMap<String, u64> {
    let mut counts = BTreeMap::new();
    let mut add = |name: String| *counts.entry(name).or_insert(0) += 1;
    for verdict in verdicts {
        add("received".into());
        match verdict.split_once(':') {
            None => add("punted".into()),
            Some(("drop", reason)) => add(format!("drop_{reason}")),
            Some((_, kind)) => {
                add("replied".into());
                if !matches!(kind, "arp" | "echo") {
                    add(kind.to_owned());
                }
            }
        }
    }
    counts
}

fn assert_counts(name: &str, replay: &Replay, verdicts: &[String]) {
    let verdict = |key: &str| {
        matches!(key, "received" | "replied" | "forwarded" | "punted" | "consumed")
            || key.starts_with("drop_")
    };
    let totals = replay.totals.iter().filter(|(key, _)| verdict(key));
    let got: BTreeMap<_, _> = totals
        .chain(&replay.outcomes)
        .filter(|(_, n)| **n > 0)
        .map(|(key, n)| (key.clone(), *n))
        .collect();
    assert_eq!(got, counted(verdicts), "{name}");
}

/// Header and question of a message: what a reply must bring back or set.
fn question(message: &[u8]) -> &[u8] {
    let mut end = 12;
    while message[end] != 0 {
        end += 1 + usize::from(message[end]);
    }
    &message[12..end + 5]
}

/// One reply against the query that it answers.
fn assert_reply(name: &str, query: &DnsFrame, reply: &DnsFrame, kind: &str) {
    assert_eq!(
        (&reply.from, &reply.to, &reply.tags),
        (&query.to, &query.from, &query.tags),
        "{name}"
    );
    let (asked, got) = (&query.message, &reply.message);
    assert_eq!(
        (&got[..2], question(got)),
        (&asked[..2], question(asked)),
        "{name}"
    );
    let rcode = match kind {
        "answer" | "nodata" => 0,
        "nxdomain" => 3,
        "refused" => 5,
        other => panic!("{name}: no RCODE for {other}"),
    };
    // QR, the opcode of the query (0), RD copied; AA unless refused.
    assert_eq!(
        got[2],
        0x80 | (asked[2] & 1) | if rcode == 5 { 0 } else { 4 },
        "{name}"
    );
    assert_eq!(got[3] & 15, rcode, "{name}");
    let answers = u16::from_be_bytes([got[6], got[7]]);
    assert_eq!(answers > 0, kind == "answer", "{name}: {answers} answers");
}

fn replays(file: &str) {
    let mut frames = capture::read(&folder().join(file)).unwrap();
    let verdicts = expected(file);
    assert_eq!(
        frames.len(),
        verdicts.len(),
        "a verdict for every frame of {file}"
    );
    frames
        .iter_mut()
        .for_each(|frame| capture::readdress(frame, &target(), Checksums::Right));

    let replay = replay(&frames);
    assert_counts(file, &replay, &verdicts);
    // One worker keeps the order, so the replies line up with the frames that call for one. What the
    // worker sends on its own account (gratuitous ARP, unsolicited NA) comes besides.
    let ours: Vec<_> = replay
        .sent
        .iter()
        .filter(|frame| !is_announcement(frame))
        .collect();
    let called: Vec<_> = verdicts
        .iter()
        .zip(&frames)
        .filter(|(verdict, _)| verdict.starts_with("reply:"))
        .collect();
    assert_eq!(ours.len(), called.len(), "{file}");
    for (at, (reply, (verdict, frame))) in ours.into_iter().zip(called).enumerate() {
        let name = format!("{file}, reply {at}");
        assert_eq!(reply[..6], frame[6..12], "{name}: to the sender's MAC");
        assert_eq!(reply[6..12], PCAP_MAC, "{name}");
        assert!(capture::checksums_hold(reply), "{name}");
        let ((ethertype, start), (_, asked)) = (capture::network(reply), capture::network(frame));
        assert_eq!(
            reply[12..start],
            frame[12..asked],
            "{name}: same tags and EtherType"
        );
        match verdict.strip_prefix("reply:").unwrap() {
            "arp" => {
                // Opcode 2; sender is the service address at our MAC; target is who asked.
                assert_eq!(reply[start + 7], 2, "{name}");
                let sender = [&PCAP_MAC[..], &[192, 0, 2, 53]].concat();
                assert_eq!(reply[start + 8..start + 18], sender, "{name}");
                assert_eq!(
                    reply[start + 18..start + 28],
                    frame[asked + 8..asked + 18],
                    "{name}"
                );
            }
            "echo" => {
                // Type 0; identifier, sequence number and payload as sent.
                assert_eq!((ethertype, reply[start + 20]), ([8, 0], 0), "{name}");
                assert_eq!(reply[start + 24..], frame[asked + 24..], "{name}");
            }
            kind => {
                assert_reply(
                    &name,
                    &capture::dns(frame).unwrap(),
                    &capture::dns(reply).unwrap(),
                    kind,
                );
            }
        }
    }
}

/// An ARP request or a neighbour advertisement to all: sent unasked.
fn is_announcement(frame: &[u8]) -> bool {
    frame[0] & 1 == 1
}

#[test]
fn dns_a_queries() {
    replays("dns-a-queries.pcap");
}

#[test]
fn dns_ecs_real_resolver() {
    replays("dns-ecs-real-resolver.pcap");
}

#[test]
fn dns_forward_pointer() {
    replays("dns-forward-pointer.pcap");
}

#[test]
fn dns_over_ipv6_opt() {
    replays("dns-over-ipv6-opt.pcap");
}

#[test]
fn dns_root_ns_ipv6_padded() {
    replays("dns-root-ns-ipv6-padded.pcap");
}

#[test]
fn dns_tcp_many_messages_one_segment() {
    replays("dns-tcp-many-messages-one-segment.pcap");
}

#[test]
fn edns_options() {
    replays("edns-options.pcap");
}

#[test]
fn qinq_arp() {
    replays("qinq-arp.pcap");
}

#[test]
fn vlan_priority_tag() {
    replays("vlan-priority-tag.pcap");
}

#[test]
fn wrong_udp_checksums_are_dropped() {
    let mut frames = capture::read(&folder().join("edns-options.pcap")).unwrap();
    // Queries alone: what is for the kernel is punted unread.
    frames.retain(|frame| capture::dns(frame).is_some_and(|dns| dns.to.1 == 53));
    frames
        .iter_mut()
        .for_each(|frame| capture::readdress(frame, &target(), Checksums::WrongUdp));
    let verdicts = vec!["drop:udp_checksum".to_owned(); frames.len()];
    assert_counts("wrong checksums", &replay(&frames), &verdicts);
}
