//! The loop end to end: users of two ISPs, servers of two sites, their traffic through bridge ports of a running appliance, which
//! sends the users where it sees that they are answered soonest. Needs root.
//!
//! ```text
//!   isp-one 10.1.0.10 --|      |-- dns0 ---- port dns 192.0.2.53
//!                       | edge |
//!   isp-two 10.2.0.10 --|      |-- wan ----- port users == bridge == port servers ---- servers 198.51.100.1 (near), .2 (far)
//! ```

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use windrose_tests::appliance::Appliance;
use windrose_tests::client::dig;
use windrose_tests::lab::{Host, Lab};
use windrose_tests::laws;
use windrose_tests::process::eventually;
use windrose_tests::stream::{datagrams, inside, query};

/// A test's patience on a busy machine.
const LONG: Duration = Duration::from_secs(90);
const NAME: &str = "www.example.com";
const SERVICE: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 53);
const SERVERS: [Ipv4Addr; 2] = [Ipv4Addr::new(198, 51, 100, 1), Ipv4Addr::new(198, 51, 100, 2)];
const PORT: u16 = 8000;
/// Milliseconds that each site takes.
const TAKES: [u64; 2] = [10, 25];
/// Clients of each ISP, each with one request under way.
const CLIENTS: usize = 6;
/// What they go by one answer for.
const TTL: Duration = Duration::from_secs(1);
/// Bytes of a request, and of a response.
const MESSAGE: usize = 64;

const ZONE: &str = "$ORIGIN example.com.
$TTL 300
@ SOA ns1 hostmaster 1 3600 600 86400 60
@ NS ns1
ns1 A 192.0.2.53
";

fn config(socket: &str) -> String {
    let port = |name: &str, number: u8, rest: &str| {
        format!(
            "[[port]]\nname = \"{name}\"\ndevice = \"net_af_packet{number},iface={name}0\"\nverify_udp_checksum = false\n{rest}\n"
        )
    };
    [
        "[dataplane]\ncores = [0]\nshare_cores = true\nidle = \"sleep\"\nmemory = \"128MB\"\n",
        &port("dns", 0, "addresses = [\"192.0.2.53\"]"),
        &port("users", 1, "role = \"bridge\"\npair = \"servers\""),
        &port("servers", 2, "role = \"bridge\"\npair = \"users\""),
        "[latency]\nflows = 10_000\nwindow = \"2s\"\nhold = \"3s\"\nfile = \"samples.csv\"\n\
         [[isp]]\nname = \"one\"\nprefixes = [\"10.1.0.0/16\"]\n\
         [[isp]]\nname = \"two\"\nprefixes = [\"10.2.0.0/16\"]\n\
         [[site]]\nname = \"near\"\n[[site]]\nname = \"far\"\n\
         [[zone]]\nname = \"example.com\"\nfile = \"example.zone\"\n\
         [[service]]\nname = \"www.example.com\"\nttl = 1\nanswers = 1\nchain = [\"health\", \"latency\", \"static\"]\n\
         latency = { explore = \"20%\" }\n\
         member = [ { address = \"198.51.100.1\", site = \"near\" }, { address = \"198.51.100.2\", site = \"far\" } ]\n",
        &format!("[admin]\nsocket = \"{socket}\"\n[dns.tcp]\nenabled = false\n"),
    ]
    .concat()
}

/// Everything that runs. Fields drop in order: the traffic first.
struct World {
    traffic: Traffic,
    appliance: Appliance,
    isps: [Host; 2],
    lab: Lab,
}

impl World {
    fn build() -> Result<Self> {
        let mut lab = Lab::new()?;
        let [app, edge, servers] = ["app", "edge", "servers"].map(|name| lab.host(name));
        let (app, edge, servers) = (app?, edge?, servers?);
        let isps = [lab.host("isp-one")?, lab.host("isp-two")?];
        edge.sysctl("net.ipv4.ip_forward", "1")?;
        for (isp, net) in isps.iter().zip([1, 2]) {
            lab.link(&edge, &format!("isp{net}"), isp, "eth0")?;
            edge.address(&format!("isp{net}"), &format!("10.{net}.0.1/24"))?;
            isp.address("eth0", &format!("10.{net}.0.10/24"))?;
            isp.ip(&format!("route add default via 10.{net}.0.1"))?;
        }
        lab.link(&app, "dns0", &edge, "dns0")?;
        lab.link(&app, "users0", &edge, "wan")?;
        lab.link(&app, "servers0", &servers, "eth0")?;
        for interface in ["dns0", "users0", "servers0"] {
            app.sysctl(&format!("net.ipv6.conf.{interface}.disable_ipv6"), "1")?;
        }
        edge.address("dns0", "192.0.2.1/24")?;
        edge.address("wan", "172.16.0.1/24")?;
        servers.address("eth0", "172.16.0.2/24")?;
        for server in SERVERS {
            servers.address("lo", &format!("{server}/32"))?;
        }
        edge.ip("route add 198.51.100.0/24 via 172.16.0.2")?;
        servers.ip("route add 10.0.0.0/8 via 172.16.0.1")?;
        let socket = lab.folder().join("admin.sock");
        lab.write("example.zone", ZONE)?;
        let config = lab.write("windrose.toml", &config(&socket.to_string_lossy()))?;
        let appliance = Appliance::start(&app, &config, &socket)?;
        let traffic = Traffic::start(&servers, &isps)?;
        Ok(Self {
            traffic,
            appliance,
            isps,
            lab,
        })
    }

    /// The share of 80 answers for an ISP's resolver that name the near site.
    fn near(&self, isp: usize) -> Result<f64> {
        let socket = datagrams(&self.isps[isp], SERVICE.into())?;
        let sites: Result<Vec<usize>> = (0..80).map(|n| ask(&socket, fresh_id(n))).collect();
        let near = sites?.iter().filter(|site| **site == 0).count();
        Ok(near as f64 / 80.0)
    }

    /// Waits until the answers for ISP one lead to the near site, or to the far one, but for those who explore; what those for ISP
    /// two were in the meantime at least.
    fn waits_until(&self, what: &str, near: bool) -> f64 {
        let mut last = (0.0, 1.0_f64);
        let begun = Instant::now();
        let waited = eventually(what, LONG, || {
            let (one, two) = (self.near(0)?, self.near(1)?);
            last = (one, last.1.min(two));
            Ok(if near { one >= 0.7 } else { one <= 0.3 })
        });
        waited.unwrap_or_else(|error| {
            panic!(
                "{error:#}: {last:?}\n{}\n{}",
                self.appliance.ask(&["latency"]).unwrap(),
                self.explain()
            )
        });
        eprintln!("{what}: after {:.1} s", begun.elapsed().as_secs_f64());
        last.1
    }

    fn explain(&self) -> String {
        self.appliance
            .ask(&["explain", NAME, "A", "--from", "10.1.0.10"])
            .unwrap()
    }

    /// What answers for clients of an ISP go by at a site, milliseconds.
    fn evidence(&self, clients: &str, site: &str) -> Result<(f64, u64)> {
        let report: Value = serde_json::from_str(&self.appliance.ask(&["latency", "--json"])?)?;
        let cells = report["cells"].as_array().context("cells")?;
        let is =
            |cell: &&Value| cell["clients"] == clients && cell["site"] == site && cell["member"].is_null();
        let evidence = &cells.iter().find(is).context("the cell")?["evidence"];
        let value = evidence["measured_ms"]
            .as_f64()
            .with_context(|| format!("{report:#}"))?;
        Ok((value, evidence["flows"].as_u64().context("flows")?))
    }
}

/// An id that differs from question to question: who explores is told by it.
fn fresh_id(n: u16) -> u16 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    let mixed = NEXT
        .fetch_add(1, Ordering::Relaxed)
        .wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed >> 48) as u16 ^ n
}

/// The site that the name leads to.
fn ask(socket: &UdpSocket, id: u16) -> Result<usize> {
    socket.send(&query(id, NAME, 1))?;
    let mut reply = [0; 512];
    let len = socket.recv(&mut reply).context("no answer came")?;
    // One A record and nothing behind it.
    let address = reply.get(len - 4..len).context("a short answer")?;
    let site = SERVERS.iter().position(|server| server.octets()[..] == *address);
    site.with_context(|| format!("{address:?} is no member"))
}

/// Servers and clients, as threads of this process with sockets in the namespaces.
struct Traffic {
    stop: Arc<AtomicBool>,
    /// What the near site takes more for ISP one, milliseconds.
    slower: Arc<AtomicU64>,
    clients: Vec<JoinHandle<Result<()>>>,
}

impl Traffic {
    fn start(servers: &Host, isps: &[Host; 2]) -> Result<Self> {
        let (stop, slower) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        for (site, address) in SERVERS.into_iter().enumerate() {
            let listener = inside(servers, move || Ok(TcpListener::bind((address, PORT))?))?;
            let slower = slower.clone();
            // Ends with the process: it waits for connections that do not come any more.
            std::thread::spawn(move || {
                for stream in listener.incoming().flatten() {
                    let slower = slower.clone();
                    std::thread::spawn(move || serve(stream, site, &slower));
                }
            });
        }
        let clients = isps.iter().flat_map(|isp| vec![isp; CLIENTS]).map(|isp| {
            let (isp, stop) = (isp.clone(), stop.clone());
            std::thread::spawn(move || client(&isp, &stop))
        });
        Ok(Self {
            clients: clients.collect(),
            stop,
            slower,
        })
    }

    /// Ends the clients, none of which may have failed.
    fn end(&mut self) -> Result<()> {
        self.stop.store(true, Ordering::Relaxed);
        for client in self.clients.drain(..) {
            client
                .join()
                .map_err(|_| anyhow::anyhow!("a client panicked"))??;
        }
        Ok(())
    }
}

impl Drop for Traffic {
    fn drop(&mut self) {
        // What went wrong is told already.
        let _ = self.end();
    }
}

/// One response for each request, after the time that the site takes.
fn serve(mut stream: TcpStream, site: usize, slower: &AtomicU64) {
    let of_one =
        matches!(stream.peer_addr().map(|peer| peer.ip()), Ok(IpAddr::V4(peer)) if peer.octets()[1] == 1);
    let mut request = [0; MESSAGE];
    while stream.read_exact(&mut request).is_ok() {
        let more = if site == 0 && of_one {
            slower.load(Ordering::Relaxed)
        } else {
            0
        };
        std::thread::sleep(Duration::from_millis(TAKES[site] + more));
        if stream.write_all(&request).is_err() {
            return;
        }
    }
}

/// Asks for the name, goes where it leads with one request after the other, and asks again when the TTL is over.
fn client(isp: &Host, stop: &AtomicBool) -> Result<()> {
    let socket = datagrams(isp, SERVICE.into())?;
    let mut message = [7; MESSAGE];
    while !stop.load(Ordering::Relaxed) {
        let site = ask(&socket, fresh_id(0))?;
        let server = SocketAddr::from((SERVERS[site], PORT));
        let mut stream = inside(isp, move || Ok(TcpStream::connect_timeout(&server, LONG)?))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(LONG))?;
        let asked = Instant::now();
        while asked.elapsed() < TTL && !stop.load(Ordering::Relaxed) {
            stream.write_all(&message)?;
            stream.read_exact(&mut message)?;
        }
    }
    Ok(())
}

#[test]
fn users_follow_what_their_own_traffic_shows() {
    let mut world = World::build().unwrap();
    // Half of the clients each, until something is known; then all to the near one.
    eventually("both sites are measured for both", LONG, || {
        let mut known = [("one", "near"), ("one", "far"), ("two", "near"), ("two", "far")].into_iter();
        let measured = known.all(|(clients, site)| world.evidence(clients, site).is_ok());
        Ok(measured && world.near(0)? >= 0.7 && world.near(1)? >= 0.7)
    })
    .unwrap();
    let (near, flows) = world.evidence("one", "near").unwrap();
    // The server's sleep, and what the kernel, the appliance and two cores add.
    assert!(
        (10.0..25.0).contains(&near) && flows >= 3,
        "{near} ms from {flows} flows"
    );

    world.traffic.slower.store(30, Ordering::Relaxed);
    let two = world.waits_until("ISP one leaves for the far site", false);
    let screen = world.appliance.ask(&["latency"]).unwrap();
    assert!(
        two >= 0.5,
        "ISP two stays, but for those who explore: {two}\n{screen}"
    );
    let (near, _) = world.evidence("one", "near").unwrap();
    let (far, _) = world.evidence("one", "far").unwrap();
    assert!(
        (40.0..80.0).contains(&near) && (25.0..40.0).contains(&far),
        "{near} and {far} ms"
    );
    let (near, _) = world.evidence("two", "near").unwrap();
    assert!((10.0..25.0).contains(&near), "{near} ms");

    // Why, wherever one asks.
    let text = world.explain();
    let line = |site: &str| {
        let found = text
            .lines()
            .find(|line| line.trim_start().starts_with(site) && line.contains(" flows, "));
        found
            .unwrap_or_else(|| panic!("nothing of {site}:\n{text}"))
            .to_owned()
    };
    assert!(text.contains("by response latency of passing traffic"), "{text}");
    assert!(
        line("near").contains("dropped: over") && line("near").contains("s old"),
        "{text}"
    );
    assert!(!line("far").contains("dropped"), "{text}");
    let metrics = world.appliance.get("/metrics").unwrap();
    let key = "windrose_latency_evidence_seconds{clients=\"one\",site=\"near\"} ";
    let seconds = metrics.lines().find_map(|line| line.strip_prefix(key)).unwrap();
    assert!(
        (0.04..0.08).contains(&seconds.parse::<f64>().unwrap()),
        "{seconds} s"
    );
    let screen = world.appliance.ask(&["latency"]).unwrap();
    assert!(
        screen.starts_with("MS, LAST 2.0s") && screen.contains("ms from"),
        "{screen}"
    );
    let status = world.appliance.ask(&["status"]).unwrap();
    assert!(
        status.contains("response latency: ") && !status.contains("LATENCY IS LOST"),
        "{status}"
    );
    // dig, of either ISP.
    for isp in &world.isps {
        let reply = dig(isp, SERVICE.into(), "www.example.com A").unwrap();
        assert_eq!((reply.status.as_str(), reply.addresses().len()), ("NOERROR", 1));
    }

    world.traffic.slower.store(0, Ordering::Relaxed);
    let two = world.waits_until("ISP one comes back", true);
    assert!(two >= 0.5, "ISP two stays, but for those who explore: {two}");

    world.traffic.end().unwrap();
    let World {
        appliance,
        lab,
        traffic,
        ..
    } = world;
    laws::hold(&appliance.stop().unwrap()).unwrap();
    drop(traffic);
    let rows = std::fs::read_to_string(lab.folder().join("samples.csv")).unwrap();
    ensure_rows(&rows).unwrap();
}

/// The file of samples: every row is whole, and there are some of each ISP at each site.
fn ensure_rows(text: &str) -> Result<()> {
    let mut lines = text.lines();
    ensure!(lines.next() == Some("time,clients,site,member,kind,value,flow,confidence,doubts"));
    let rows: Vec<Vec<&str>> = lines.map(|line| line.split(',').collect()).collect();
    ensure!(rows.iter().all(|row| row.len() == 9), "a row of another length");
    for (clients, site) in [("one", "near"), ("one", "far"), ("two", "near"), ("two", "far")] {
        let some = rows
            .iter()
            .any(|row| row[1] == clients && row[2] == site && row[4] == "response");
        ensure!(some, "no response of {clients} at {site}");
    }
    Ok(())
}
