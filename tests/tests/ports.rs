//! The other DPDK ports: TAP with a kernel client, memif with pktgen, null. Needs root.

use serde_json::Value;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;
use windrose_tests::appliance::{Appliance, one_port, program};
use windrose_tests::client::dig;
use windrose_tests::lab::{Host, Lab};
use windrose_tests::laws;
use windrose_tests::process::eventually;

const LONG: Duration = Duration::from_secs(20);

/// An appliance on `device` that serves the demo's zone, without services.
fn start(lab: &mut Lab, device: &str) -> (Host, Appliance) {
    let host = lab.host("app").unwrap();
    let zone = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("../configs/demo.zone")
        .canonicalize()
        .unwrap();
    let socket = lab.folder().join("admin.sock");
    let zone = format!(
        "\n[[zone]]\nname = \"example.com\"\nfile = \"{}\"\n",
        zone.display()
    );
    let config = lab
        .write("windrose.toml", &(one_port(device, &socket) + &zone))
        .unwrap();
    let appliance = Appliance::start(&host, &config, &socket).unwrap();
    (host, appliance)
}

#[test]
fn tap_answers_a_kernel_client() {
    let mut lab = Lab::new().unwrap();
    // The client is the kernel at the other end of the TAP, in the same namespace.
    let (host, appliance) = start(&mut lab, "net_tap0,iface=wr0");
    host.address("wr0", "192.0.2.10/24").unwrap();
    host.address("wr0", "2001:db8:1::10/64").unwrap();
    host.ip("link set wr0 up").unwrap();
    for server in ["192.0.2.53", "2001:db8:1::53"] {
        let server: IpAddr = server.parse().unwrap();
        let reply = dig(&host, server, "www.example.com A").unwrap();
        assert_eq!(
            reply.addresses(),
            ["192.0.2.80".parse::<IpAddr>().unwrap()],
            "{}",
            reply.text
        );
        assert_eq!(
            dig(&host, server, "absent.example.com A").unwrap().status,
            "NXDOMAIN"
        );
    }
    laws::hold(&appliance.stop().unwrap()).unwrap();
}

#[test]
fn memif_answers_pktgen() {
    let mut lab = Lab::new().unwrap();
    let memif = lab.folder().join("memif.sock");
    let device = |role: &str| {
        format!(
            "net_memif0,role={role},id=0,socket={},socket-abstract=no",
            memif.display()
        )
    };
    let (host, appliance) = start(&mut lab, &device("server"));
    let pktgen = program("pktgen").unwrap();
    let port = device("client");
    let argv = [
        &*pktgen.to_string_lossy(),
        "dns",
        "--port",
        &port,
        "--server",
        "192.0.2.53",
        "--source",
        "192.0.2.128/25",
        "--name",
        "www.example.com",
        "--rate",
        "2000",
        "--duration",
        "2s",
        "--idle",
        "sleep",
        "--json",
    ];
    let output = host.run(&argv, LONG).unwrap().success().unwrap();
    let json: String = output.lines().skip_while(|line| !line.starts_with('{')).collect();
    let report: Value = serde_json::from_str(&json).unwrap();
    let count = |key: &str| report[key].as_u64().unwrap();
    assert_eq!(
        (count("lost"), count("wrong"), count("answered")),
        (0, 0, count("sent")),
        "{report:#}"
    );
    // 2 s at 2,000 a second, less a slow start on a busy machine.
    assert!(count("sent") > 1000, "{report:#}");
    assert_eq!(
        report["addresses"]["192.0.2.80"], report["answered"],
        "{report:#}"
    );
    laws::hold(&appliance.stop().unwrap()).unwrap();
}

#[test]
fn null_starts_and_keeps_the_laws() {
    let mut lab = Lab::new().unwrap();
    let (_, appliance) = start(&mut lab, "net_null0");
    // As many frames as are polled for. Nobody writes them: they hold what their buffers held before,
    // zeroes at first, so most are to MAC 00:00:00:00:00:00, which is nobody.
    eventually("frames come", LONG, || Ok(appliance.received()? > 10_000)).unwrap();
    let totals = laws::hold(&appliance.stop().unwrap()).unwrap();
    assert!(totals["drop_foreign_mac"] > 0, "{totals:?}");
    assert_eq!(totals["received"], totals["dropped"], "{totals:?}");
}
