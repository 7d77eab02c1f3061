//! The lab itself: namespaces, wires, processes and their clean-up. Needs root.

use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::time::Duration;
use windrose_tests::lab::{Lab, sweep};
use windrose_tests::origin::Origin;
use windrose_tests::process::{self, eventually};
use windrose_tests::raw::RawSocket;

const LONG: Duration = Duration::from_secs(10);

fn netns_exists(name: &str) -> bool {
    Path::new("/run/netns").join(name).exists()
}

#[test]
fn a_lab_wires_hosts_and_removes_them() {
    let mut lab = Lab::new().unwrap();
    let (a, b) = (lab.host("a").unwrap(), lab.host("b").unwrap());
    lab.link(&a, "eth0", &b, "eth0").unwrap();
    a.address("eth0", "192.0.2.1/24").unwrap();
    b.address("eth0", "192.0.2.2/24").unwrap();
    a.address("eth0", "2001:db8::1/64").unwrap();
    b.address("eth0", "2001:db8::2/64").unwrap();
    a.command(&["ping", "-c", "1", "-W", "2", "192.0.2.2"]).unwrap();
    a.command(&["ping", "-6", "-c", "1", "-W", "2", "2001:db8::2"])
        .unwrap();
    // Offload is off at both ends: what one sends, the other sees complete.
    for host in [&a, &b] {
        let features = host.command(&["ethtool", "-k", "eth0"]).unwrap();
        assert!(features.contains("tx-checksumming: off"), "{features}");
        assert!(features.contains("tx-tcp-segmentation: off"), "{features}");
    }
    a.sysctl("net.ipv4.ip_forward", "1").unwrap();
    assert_eq!(
        a.command(&["sysctl", "-n", "net.ipv4.ip_forward"])
            .unwrap()
            .trim(),
        "1"
    );
    assert_eq!(
        b.command(&["sysctl", "-n", "net.ipv4.ip_forward"])
            .unwrap()
            .trim(),
        "0"
    );
    // A process that still runs inside goes with the lab.
    let sleeper = b.spawn(&["sleep", "600"]).unwrap();
    let folder = lab.folder().to_owned();
    drop(lab);
    assert!(!netns_exists(a.name()) && !netns_exists(b.name()) && !folder.exists());
    assert_eq!(sleeper.wait(LONG).unwrap().code, 128 + 9);
}

#[test]
fn a_panic_removes_the_lab() {
    let name = std::sync::Mutex::new(String::new());
    let caught = std::panic::catch_unwind(|| {
        let mut lab = Lab::new().unwrap();
        let host = lab.host("p").unwrap();
        *name.lock().unwrap() = host.name().to_owned();
        assert!(netns_exists(host.name()));
        std::panic::resume_unwind(Box::new("on purpose"));
    });
    let name = name.into_inner().unwrap();
    assert!(caught.is_err() && !name.is_empty() && !netns_exists(&name));
}

#[test]
fn the_sweep_takes_only_the_leftovers_of_dead_processes() {
    let _lab = Lab::new().unwrap();
    // Above the largest process id that Linux gives (2^22).
    let (dead, alive, foreign) = (
        "wr4999999-0-x",
        format!("wr{}-s", std::process::id()),
        "wrong-name",
    );
    for name in [dead, &alive, foreign] {
        process::run(None, &["ip", "netns", "add", name], LONG)
            .unwrap()
            .success()
            .unwrap();
    }
    let folders = [dead, &alive, foreign].map(|name| std::env::temp_dir().join(name));
    folders
        .iter()
        .for_each(|folder| std::fs::create_dir(folder).unwrap());
    sweep();
    let kept = folders.clone().map(|folder| std::fs::remove_dir(folder).is_ok());
    let left = [dead, &alive, foreign].map(netns_exists);
    for name in [dead, &alive, foreign] {
        let _ = process::run(None, &["ip", "netns", "del", name], LONG);
    }
    assert_eq!((left, kept), ([false, true, true], [false, true, true]));
}

#[test]
fn a_command_that_hangs_is_killed_and_its_output_kept() {
    let lab = Lab::new().unwrap();
    let file = lab.write("pid", "").unwrap();
    let script = format!("echo $$ > {}; echo before; exec sleep 600", file.display());
    let error = process::run(None, &["sh", "-c", &script], Duration::from_millis(500))
        .unwrap_err()
        .to_string();
    assert!(error.contains("before"), "{error}");
    let pid = std::fs::read_to_string(file).unwrap();
    assert!(!Path::new("/proc").join(pid.trim()).exists());
    let failed = process::run(None, &["sh", "-c", "echo out; echo err >&2; exit 3"], LONG).unwrap();
    assert_eq!(
        (failed.code, failed.stdout.as_str(), failed.stderr.as_str()),
        (3, "out\n", "err\n")
    );
    assert!(failed.success().unwrap_err().to_string().contains("err"));
}

#[test]
fn a_child_dies_with_the_thread_that_started_it() {
    let child = std::thread::spawn(|| {
        let child = process::spawn(None, &["sleep", "600"]).unwrap();
        // Until the death signal is set up: setpriv has become sleep.
        let name = format!("/proc/{}/comm", child.pid());
        eventually("sleep runs", LONG, || {
            Ok(std::fs::read_to_string(&name)?.trim() == "sleep")
        })
        .unwrap();
        child
    });
    let child = child.join().unwrap();
    assert_eq!(child.wait(LONG).unwrap().code, 128 + 9);
}

#[test]
fn an_origin_answers_crashes_hangs_and_comes_back() {
    let mut lab = Lab::new().unwrap();
    let (client, site) = (lab.host("client").unwrap(), lab.host("site").unwrap());
    lab.link(&client, "eth0", &site, "eth0").unwrap();
    client.address("eth0", "198.51.100.1/24").unwrap();
    site.address("eth0", "198.51.100.11/24").unwrap();
    let listen: SocketAddr = "198.51.100.11:8080".parse().unwrap();
    let mut origin = Origin::start(&site, "seoul", &[listen]).unwrap();
    // curl's exit codes: 22 HTTP error, 28 timeout, 7 connection refused.
    let ask = |path: &str, limit: &str| {
        let url = format!("http://{listen}{path}");
        let got = client
            .run(&["curl", "-sS", "--fail", "--max-time", limit, &url], LONG)
            .unwrap();
        (got.code, got.stdout)
    };
    let fine = (0, "seoul\n".to_owned());
    assert_eq!(ask("/healthz", "5"), fine);
    assert_eq!(ask("/nothing", "5").0, 22);
    origin.hang().unwrap();
    assert_eq!(ask("/healthz", "0.3").0, 28);
    origin.resume().unwrap();
    assert_eq!(ask("/healthz", "5"), fine);
    origin.crash().unwrap();
    assert_eq!(ask("/healthz", "5").0, 7);
    assert!(origin.hang().is_err());
    origin.restart().unwrap();
    assert_eq!(ask("/healthz", "5"), fine);
}

#[test]
fn raw_frames_keep_their_vlan_tags() {
    let mut lab = Lab::new().unwrap();
    let (a, b) = (lab.host("a").unwrap(), lab.host("b").unwrap());
    lab.link(&a, "eth0", &b, "eth0").unwrap();
    let (from, to) = (
        RawSocket::open(&a, "eth0").unwrap(),
        RawSocket::open(&b, "eth0").unwrap(),
    );
    let addresses = [b.mac("eth0").unwrap(), a.mac("eth0").unwrap()].concat();
    for tags in [
        &[][..],
        &[0x81, 0, 0xb0, 5],
        &[0x88, 0xa8, 0, 200, 0x81, 0, 7, 0xd1],
    ] {
        // 0x88b5: local experimental EtherType 1 (IEEE 802).
        let frame = [&addresses[..], tags, &[0x88, 0xb5], &[0x5a; 60]].concat();
        from.send(&frame).unwrap();
        let got = to.receive(LONG, |frame| frame.ends_with(&[0x5a; 60])).unwrap();
        assert_eq!(got, frame);
    }
    assert!(
        to.receive(Duration::from_millis(200), |frame| frame.ends_with(&[0x5a; 60]))
            .is_err()
    );
}

#[test]
fn a_missing_dns_server_is_an_error_of_dig() {
    let mut lab = Lab::new().unwrap();
    let host = lab.host("a").unwrap();
    let server: IpAddr = "127.0.0.1".parse().unwrap();
    assert!(windrose_tests::client::dig(&host, server, "example.com A").is_err());
}
