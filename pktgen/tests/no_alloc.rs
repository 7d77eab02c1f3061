//! After its start the engine takes nothing from the heap: a whole run, replies and all, is measured.

mod common;

use common::{SERVER_MAC, Served, Server, Steps};
use dataplane::io::memory::MemoryWire;
use pktgen::clients::Clients;
use pktgen::dns::engine::{Engine, Live, Plan};
use pktgen::dns::names::{self, Queries};
use pktgen::dns::schedule::{Limit, Pace, SECOND, Schedule};
use pktgen::dns::template::{Ecs, Spec, Templates};
use pktgen::neighbour::Link;

/// Turns each query into an empty reply in place, but every eighth.
struct Echo(u64);

impl Server for Echo {
    fn frame(&mut self, frame: &mut [u8; 2048], len: usize, wire: &MemoryWire) {
        self.0 += 1;
        if self.0.is_multiple_of(8) {
            return;
        }
        let mut reply = *frame;
        reply[26..30].copy_from_slice(&frame[30..34]);
        reply[30..34].copy_from_slice(&frame[26..30]);
        reply[34..36].copy_from_slice(&frame[36..38]);
        reply[36..38].copy_from_slice(&frame[34..36]);
        reply[44] |= 0x80;
        reply[40..42].copy_from_slice(&[0, 0]); // no UDP checksum: allowed over IPv4
        assert!(wire.inject(&reply[..len]));
    }
}

#[test]
fn a_run_does_not_allocate() {
    let server = "192.0.2.53".parse().unwrap();
    let clients = Clients::new("192.0.2.0/24".parse().unwrap(), server).unwrap();
    let Queries { queries, mix } =
        names::from_pattern("host{0-99}.example.com", "A:3,AAAA:1".parse().unwrap()).unwrap();
    let spec = Spec {
        source_mac: common::CLIENT_MAC,
        destination_mac: SERVER_MAC,
        vlan: None,
        server,
        clients,
        edns: Some(1232),
        dnssec_ok: true,
        ecs: Ecs::new("10.0.0.0/8".parse().unwrap()),
        mixed_case: true,
    };
    let plan = Plan {
        templates: Templates::new(spec, &queries).unwrap(),
        mix,
        schedule: Schedule::new(Pace::Rate(20_000), Limit::Duration(SECOND), 0, SECOND),
        link: Link {
            mac: common::CLIENT_MAC,
            vlan: None,
            clients,
        },
        server,
        expect: None,
        timeout: 100_000_000,
        in_flight: 4_096,
        mixed_case: true,
        seed: 3,
    };
    let mut port = Served::new(Echo(0));
    let live = Live::default();
    let mut engine = Engine::new(plan, &live);
    let mut counts = (0, 0);
    let heap = allocation_counter::measure(|| {
        let tally = engine.run(
            &mut port,
            &mut Steps {
                now: 0,
                step: 1_000_000,
            },
        );
        counts = (tally.answered, tally.lost);
    });
    assert_eq!(counts, (17_500, 2_500));
    assert_eq!(heap.count_total, 0, "{heap:?}");
    // The counter counts: a report is made on the heap.
    assert!(allocation_counter::measure(|| drop(vec![1u8])).count_total > 0);
}
