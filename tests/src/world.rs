//! The world of `configs/demo.toml`: two ISPs, three sites, and the appliance between them.
//!
//! Called by the demo and the end-to-end tests. Owns the lab, the origins and the running appliance.
//!
//! ```text
//!   isp-kt eth0 192.0.2.10 ---- kt0 |           | to-a ---- eth0 198.51.100.11   seoul-kt
//!                                   | appliance | to-b ---- eth0 198.51.100.75   seoul-lg
//!   isp-lg eth0 203.0.113.10 -- lg0 |           | to-c ---- eth0 198.51.100.139  busan
//!   gen eth0 (pktgen's port) -- gen0 |
//! ```
//!
//! kt0, lg0 and gen0 are DPDK ports without addresses; the clients find the service addresses by ARP and
//! neighbour discovery. Health checks go by the kernel over to-a, to-b and to-c.

use crate::appliance::Appliance;
use crate::lab::{Host, Lab};
use crate::origin::Origin;
use anyhow::{Context, Result};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};

/// An ISP of the world: where its users and its resolver are.
#[derive(Clone, Debug)]
pub struct Isp {
    /// Its name in the configuration.
    pub name: &'static str,
    /// Its namespace; the resolver's interface is `eth0`.
    pub host: Host,
    /// The resolver's addresses.
    pub resolver: (Ipv4Addr, Ipv6Addr),
    /// The service addresses on its port.
    pub service: (Ipv4Addr, Ipv6Addr),
}

/// A site of the world.
#[derive(Debug)]
pub struct Site {
    /// Its name in the configuration.
    pub name: &'static str,
    /// Its namespace.
    pub host: Host,
    /// Its member, IPv4.
    pub ipv4: Ipv4Addr,
    /// Its member, IPv6.
    pub ipv6: Ipv6Addr,
    /// Its server.
    pub origin: Origin,
}

/// The lab with everything in it. Fields drop in order: the appliance before its wires.
#[derive(Debug)]
pub struct World {
    appliance: Option<Appliance>,
    /// KT and LG.
    pub isps: Vec<Isp>,
    /// seoul-kt, seoul-lg and busan.
    pub sites: Vec<Site>,
    /// The appliance's namespace.
    pub host: Host,
    /// The generator's namespace: its `eth0` is for a DPDK port.
    pub generator: Host,
    /// The lab.
    pub lab: Lab,
}

/// The kind of DPDK port that faces the ISPs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `net_af_packet`.
    AfPacket,
    /// `net_af_xdp`.
    AfXdp,
}

impl World {
    /// Builds namespaces, wires and origins; `queues` queue pairs on each wire between an ISP and the
    /// appliance. The appliance is not started yet.
    ///
    /// # Errors
    /// Without root, or when anything cannot be set up.
    pub fn build(queues: usize) -> Result<Self> {
        let mut lab = Lab::new()?;
        let host = lab.host("app")?;
        let mut isps = Vec::new();
        for (at, (name, interface, net4)) in [("KT", "kt0", [192, 0, 2]), ("LG", "lg0", [203, 0, 113])]
            .into_iter()
            .enumerate()
        {
            let isp = lab.host(&format!("isp-{}", name.to_lowercase()))?;
            let (ipv4, ipv6) = (
                |last| four(net4, last),
                |last| six(u16::try_from(at).unwrap_or(0) + 1, last),
            );
            lab.link_queues(&host, interface, &isp, "eth0", queues)?;
            // The kernel keeps quiet on the port: no addresses, no router solicitations, no reports.
            host.sysctl(&format!("net.ipv6.conf.{interface}.disable_ipv6"), "1")?;
            isp.address("eth0", &format!("{}/24", ipv4(10)))?;
            isp.address("eth0", &format!("{}/64", ipv6(0x10)))?;
            isps.push(Isp {
                name,
                host: isp,
                resolver: (ipv4(10), ipv6(0x10)),
                service: (ipv4(53), ipv6(0x53)),
            });
        }
        let generator = lab.host("gen")?;
        lab.link_queues(&host, "gen0", &generator, "eth0", queues)?;
        host.sysctl("net.ipv6.conf.gen0.disable_ipv6", "1")?;
        generator.sysctl("net.ipv6.conf.eth0.disable_ipv6", "1")?;
        let mut sites = Vec::new();
        for (name, wire, subnet, group) in [
            ("seoul-kt", "to-a", 0u8, 0xau16),
            ("seoul-lg", "to-b", 64, 0xb),
            ("busan", "to-c", 128, 0xc),
        ] {
            let site = lab.host(name)?;
            lab.link(&host, wire, &site, "eth0")?;
            let (ipv4, ipv6) = (
                |last| four([198, 51, 100], subnet + last),
                |last| six(group, last),
            );
            host.address(wire, &format!("{}/26", ipv4(1)))?;
            host.address(wire, &format!("{}/64", ipv6(1)))?;
            site.address("eth0", &format!("{}/26", ipv4(11)))?;
            site.address("eth0", &format!("{}/64", ipv6(0x11)))?;
            let listen = [
                SocketAddr::from((ipv4(11), 8080)),
                SocketAddr::from((ipv6(0x11), 8080)),
            ];
            let origin = Origin::start(&site, name, &listen)?;
            sites.push(Site {
                name,
                host: site,
                ipv4: ipv4(11),
                ipv6: ipv6(0x11),
                origin,
            });
        }
        Ok(Self {
            appliance: None,
            isps,
            sites,
            host,
            generator,
            lab,
        })
    }

    /// Where this world's appliance has its admin socket.
    pub fn socket(&self) -> PathBuf {
        self.lab.folder().join("admin.sock")
    }

    /// Writes `configs/demo.toml` for this world: its socket, `workers` workers, ports of `kind`;
    /// then whatever `edit` makes of the text. The zone file goes beside it.
    ///
    /// # Errors
    /// When a file cannot be read or written.
    pub fn config(&self, kind: Kind, workers: usize, edit: impl FnOnce(String) -> String) -> Result<PathBuf> {
        let configs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../configs");
        let read = |name: &str| {
            std::fs::read_to_string(configs.join(name)).with_context(|| format!("read configs/{name}"))
        };
        let cores: Vec<String> = (0..workers).map(|worker| (worker % 2).to_string()).collect();
        let mut text = read("demo.toml")?
            .replace("/run/windrose-demo.sock", &self.socket().to_string_lossy())
            .replace("cores = [0]", &format!("cores = [{}]", cores.join(", ")));
        if kind == Kind::AfXdp {
            // Its rings alone hold 2,048 buffers each way on each of the three ports.
            text = text
                .replace("net_af_packet", "net_af_xdp")
                .replace("memory = \"128MB\"", "memory = \"256MB\"\nbuffers = 16384");
        }
        self.lab.write("demo.zone", &read("demo.zone")?)?;
        self.lab.write("windrose.toml", &edit(text))
    }

    /// Starts the appliance with a configuration that [`World::config`] wrote.
    ///
    /// # Errors
    /// When it does not get ready; with its log.
    pub fn start(&mut self, config: &Path) -> Result<()> {
        self.appliance = Some(Appliance::start(&self.host, config, &self.socket())?);
        Ok(())
    }

    /// A world with its appliance running: `kind` ports, `workers` workers.
    ///
    /// # Errors
    /// As [`World::build`] and [`World::start`].
    pub fn running(kind: Kind, workers: usize) -> Result<Self> {
        let mut world = Self::build(workers)?;
        let config = world.config(kind, workers, |text| text)?;
        world.start(&config)?;
        Ok(world)
    }

    /// The running appliance.
    ///
    /// # Errors
    /// When there is none.
    pub fn appliance(&mut self) -> Result<&mut Appliance> {
        self.appliance.as_mut().context("the appliance is not running")
    }

    /// Takes the appliance out, to stop it.
    ///
    /// # Errors
    /// When there is none.
    pub fn take_appliance(&mut self) -> Result<Appliance> {
        self.appliance.take().context("the appliance is not running")
    }
}

impl Isp {
    /// The service address of the family that `ipv6` says.
    pub fn server(&self, ipv6: bool) -> IpAddr {
        if ipv6 {
            self.service.1.into()
        } else {
            self.service.0.into()
        }
    }
}

fn four(net: [u8; 3], last: u8) -> Ipv4Addr {
    Ipv4Addr::new(net[0], net[1], net[2], last)
}

fn six(group: u16, last: u16) -> Ipv6Addr {
    Ipv6Addr::new(0x2001, 0xdb8, group, 0, 0, 0, 0, last)
}
