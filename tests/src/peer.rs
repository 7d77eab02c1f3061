//! Other name servers, started inside a namespace with configurations of their own: NSD, Knot and gdnsd as authorities, Unbound
//! and Knot Resolver as resolvers.
//!
//! Called by the comparisons. Each owns its process, and keeps its files in the lab's scratch folder.

use crate::client::dig;
use crate::lab::{Host, Lab};
use crate::process::{Child, eventually};
use anyhow::{Context, Result};
use std::fs;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

/// Start on a busy two-core machine.
const READY: Duration = Duration::from_secs(30);

/// Which server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// NSD.
    Nsd,
    /// Knot DNS.
    Knot,
    /// gdnsd.
    Gdnsd,
    /// Unbound: with root hints, case randomisation, minimised names.
    Unbound,
    /// Unbound that asks over TCP alone.
    UnboundTcp,
    /// Knot Resolver.
    KnotResolver,
}

/// A running one.
#[derive(Debug)]
pub struct Peer {
    /// Which.
    pub kind: Kind,
    /// Where it listens, port 53; an address of its namespace's loopback.
    pub address: IpAddr,
    _child: Child,
}

impl Peer {
    /// Starts an authority for zones, whose files are `ZONE.zone` in the lab's folder, on `address`, which is added to the loopback of
    /// `host`; UDP answers up to 1,232 bytes, one worker, no more in an answer than it must have.
    ///
    /// # Errors
    /// When it is not installed, or does not answer for the first zone.
    pub fn authority(lab: &Lab, host: &Host, kind: Kind, address: IpAddr, zones: &[&str]) -> Result<Self> {
        let folder = home(lab, kind)?;
        let here = folder.display();
        let zone_file = |zone: &str| {
            let name = if zone == "." { "root" } else { zone };
            lab.folder().join(format!("{name}.zone"))
        };
        let text = match kind {
            Kind::Nsd => {
                let zones = zones.iter().map(|zone| {
                    format!(
                        "zone:\n  name: \"{zone}\"\n  zonefile: \"{}\"\n",
                        zone_file(zone).display()
                    )
                });
                format!(
                    "server:\n  ip-address: {address}\n  username: \"\"\n  zonesdir: \"{here}\"\n  pidfile: \"\"\n  \
                     xfrdfile: \"{here}/xfrd.state\"\n  xfrdir: \"{here}\"\n  zonelistfile: \"{here}/zone.list\"\n  \
                     database: \"\"\n  server-count: 1\n  minimal-responses: yes\n  ipv4-edns-size: 1232\n  \
                     ipv6-edns-size: 1232\n  rrl-ratelimit: 0\nremote-control:\n  control-enable: no\n{}",
                    zones.collect::<String>()
                )
            }
            Kind::Knot => {
                let zones = zones.iter().map(|zone| {
                    format!(
                        "  - domain: \"{zone}\"\n    file: \"{}\"\n",
                        zone_file(zone).display()
                    )
                });
                format!(
                    "server:\n    listen: {address}@53\n    rundir: {here}\n    user: root\n    udp-workers: 1\n    \
                     tcp-workers: 1\n    background-workers: 1\n    udp-max-payload: 1232\ndatabase:\n    storage: {here}\n\
                     log:\n  - target: stderr\n    any: warning\ntemplate:\n  - id: default\n    storage: {here}\n    \
                     zonefile-sync: -1\n    zonefile-load: whole\n    journal-content: none\nzone:\n{}",
                    zones.collect::<String>()
                )
            }
            _ => {
                fs::create_dir(folder.join("zones"))?;
                for zone in zones {
                    fs::copy(zone_file(zone), folder.join("zones").join(zone))?;
                }
                format!(
                    "options => {{\n  listen => [ {address} ]\n  udp_threads => 1\n  tcp_threads => 1\n  run_dir => {here}/run\n  \
                     state_dir => {here}/state\n  max_edns_response => 1232\n}}\n"
                )
            }
        };
        let path = folder.join("config");
        fs::write(&path, text)?;
        let (path, folder) = (path.to_string_lossy(), folder.to_string_lossy());
        let argv: &[&str] = match kind {
            Kind::Nsd => &["nsd", "-d", "-c", &path],
            Kind::Knot => &["knotd", "-c", &path],
            _ => &["gdnsd", "-c", &folder, "start"],
        };
        Self::start(host, kind, address, argv, &format!("{} SOA", zones[0]))
    }

    /// Starts a resolver on `address`, which is added to the loopback of `host`, whose root server is `root`; `known` is a name that it can resolve.
    ///
    /// # Errors
    /// When it is not installed, or does not resolve.
    pub fn resolver(
        lab: &Lab,
        host: &Host,
        kind: Kind,
        address: IpAddr,
        root: IpAddr,
        known: &str,
    ) -> Result<Self> {
        let folder = home(lab, kind)?;
        let here = folder.display();
        let hints = folder.join("root.hints");
        fs::write(
            &hints,
            format!(". 3600 IN NS root.test.\nroot.test. 3600 IN A {root}\n"),
        )?;
        let hints = hints.display();
        let tcp = if kind == Kind::UnboundTcp { "yes" } else { "no" };
        let text = match kind {
            Kind::KnotResolver => format!(
                "net.listen('{address}', 53, {{ kind = 'dns' }})\nmodules = {{ 'hints' }}\nhints.root_file('{hints}')\n\
                 trust_anchors.remove('.')\nnet.ipv6 = false\ncache.size = 10 * MB\nlog_level('info')\n"
            ),
            _ => format!(
                "server:\n  directory: \"{here}\"\n  chroot: \"\"\n  username: \"\"\n  pidfile: \"\"\n  use-syslog: no\n  \
                 interface: {address}\n  access-control: 0.0.0.0/0 allow\n  do-not-query-localhost: no\n  do-ip6: no\n  \
                 root-hints: \"{hints}\"\n  module-config: \"iterator\"\n  use-caps-for-id: yes\n  qname-minimisation: yes\n  \
                 qname-minimisation-strict: yes\n  harden-below-nxdomain: yes\n  harden-large-queries: yes\n  \
                 harden-referral-path: yes\n  tcp-upstream: {tcp}\n  num-threads: 1\n\
                 remote-control:\n  control-enable: no\n"
            ),
        };
        let path = folder.join("config");
        fs::write(&path, text)?;
        let (path, folder) = (path.to_string_lossy(), folder.to_string_lossy());
        let argv: &[&str] = match kind {
            Kind::KnotResolver => &["kresd", "-n", "-q", "-c", &path, &folder],
            _ => &["unbound", "-d", "-c", &path],
        };
        Self::start(host, kind, address, argv, &format!("{known} +rec"))
    }

    fn start(host: &Host, kind: Kind, address: IpAddr, argv: &[&str], known: &str) -> Result<Self> {
        host.address("lo", &format!("{address}/32"))?;
        let mut child = host.spawn(argv)?;
        let answers = || -> Result<bool> {
            anyhow::ensure!(child.is_running()?, "it ended:\n{}", child.output());
            Ok(dig(host, address, known)
                .is_ok_and(|reply| reply.status == "NOERROR" && !reply.answer.is_empty()))
        };
        eventually(&format!("{kind:?} answers"), READY, answers)
            .with_context(|| format!("{kind:?}: is its package of packages.apt installed?"))
            .with_context(|| child.output())?;
        Ok(Self {
            kind,
            address,
            _child: child,
        })
    }
}

/// A folder for its files.
fn home(lab: &Lab, kind: Kind) -> Result<PathBuf> {
    let folder = lab.folder().join(format!("{kind:?}"));
    fs::create_dir(&folder).with_context(|| format!("make {}", folder.display()))?;
    Ok(folder)
}
