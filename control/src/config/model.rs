//! The checked configuration: what the rest of control works from. Built by `config::load` alone,
//! so every reference in it resolves and every limit holds.

mod admin;
mod alerts;
mod checks;

pub use super::latency::{Latency, Role};
pub use admin::Admin;
pub use alerts::Alert;
pub use checks::{BrownoutRule, Check, CheckKind, DampeningRule, Grade};

use crate::data::{Data, Place};
use crate::policy::chain::{self, Continent, Country};
use dataplane::wire::cookie::Secrets;
use domain::base::Name as DomainName;
use ipnet::IpNet;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

/// An absolute DNS name, in the case of its source.
pub type Name = DomainName<Vec<u8>>;

/// Everything that one appliance is told.
#[derive(Clone, Debug)]
pub struct Config {
    /// The file that it came from.
    pub path: PathBuf,
    /// SHA-256 or similar over the file and its zone files, hexadecimal: tells which text is live.
    pub hash: String,
    /// `[appliance]`.
    pub appliance: Appliance,
    /// `[dataplane]`.
    pub dataplane: Dataplane,
    /// `[[port]]`, in file order; the index is the worker's port index.
    pub ports: Vec<Port>,
    /// `[dns]`.
    pub dns: Dns,
    /// `[data]`, with what its files hold.
    pub data: Data,
    /// `[[isp]]`.
    pub isps: Vec<Isp>,
    /// `[[clients]]`. [`chain::ClientClass::named`] has their indices.
    pub clients: Vec<Clients>,
    /// `[selection]`, whatever has no place in the services that it is the default of.
    pub selection: Selection,
    /// `[[site]]`.
    pub sites: Vec<Site>,
    /// `[[zone]]`, with the records of their files.
    pub zones: Vec<Zone>,
    /// `[[service]]`.
    pub services: Vec<Service>,
    /// `[latency]`.
    pub latency: Latency,
    /// `[admin]`.
    pub admin: Admin,
    /// `[reports]`; `None`: no site reports here.
    pub reports: Option<Reports>,
    /// `[[alert]]`: who is told of events.
    pub alerts: Vec<Alert>,
}

/// `[appliance]`.
#[derive(Clone, Debug)]
pub struct Appliance {
    /// Name of this appliance in status, metrics and logs. Default "windrose".
    pub name: String,
    /// `state = "/var/lib/windrose"`: folder of what is kept over restarts (last known health, overrides, a certificate);
    /// nothing is kept without.
    pub state: Option<PathBuf>,
    /// `state_max_age = "1h"`: health that was known longer ago is not used at a start.
    pub state_max_age: Duration,
}

/// `[reports]`: where sites report to, and what becomes of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reports {
    /// `listen = "192.0.2.1:8853"`: TLS, by the kernel. Changing it needs a restart.
    pub listen: SocketAddr,
    /// `certificate` and `key`, PEM files; `None`: one is made once and kept in the state folder.
    pub certificate: Option<(PathBuf, PathBuf)>,
    /// `interval = "5s"`: what agents are told to report at.
    pub interval: Duration,
    /// `silent_after = "20s"`: a site whose last report is older is silent.
    pub silent_after: Duration,
    /// `measure = ["192.0.2.53/32"]`: prefixes that sites always measure RTTs to.
    pub measure: Vec<IpNet>,
    /// `rtt_prefixes = 4096`: prefixes with RTTs at most, `measure` included; the least recently used go first.
    pub rtt_prefixes: usize,
    /// `rtt_every = "1m"`: how often a site measures a prefix again.
    pub rtt_every: Duration,
    /// `rtt_max_age = "10m"`: an RTT that is older is forgotten, and so is a prefix whose clients were not seen for so
    /// long.
    pub rtt_max_age: Duration,
    /// `rtt_ipv4_prefix = 24`, bits: how clients that were seen are put together.
    pub rtt_prefix_v4: u8,
    /// `rtt_ipv6_prefix = 48`, bits.
    pub rtt_prefix_v6: u8,
}

/// `on_silence`: what becomes of a site that is to report and does not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum OnSilence {
    /// Local checks decide; what it would have reported is missing data.
    #[default]
    Ignore,
    /// It is given only when no other is left.
    Avoid,
}

impl OnSilence {
    /// Its name in a configuration.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ignore => "ignore",
            Self::Avoid => "avoid",
        }
    }
}

/// A bearer token. Not shown by `Debug`.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Token(pub String);

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(not shown)")
    }
}

/// `[dataplane]`: workers and memory. Changing it needs a restart.
#[derive(Clone, Debug)]
pub struct Dataplane {
    /// CPU that each worker is pinned to, one worker an entry. `cores = [1, 2]`.
    pub cores: Vec<usize>,
    /// `share_cores = true`: workers may share CPUs with each other and with control (lab only).
    pub share_cores: bool,
    /// `idle = "spin" | "sleep"`: what a worker does when a turn found nothing. Sleep is for labs.
    pub idle: Idle,
    /// `memory = "256MB"`: what EAL reserves, bytes.
    pub memory_bytes: u64,
    /// `buffers = 8192`: mbufs in each worker's pool.
    pub buffers: u32,
    /// `eal = ["--log-level=..."]`: further EAL arguments, verbatim.
    pub eal: Vec<String>,
}

/// What a worker does when no port had a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Idle {
    /// Polls on: the product's way.
    Spin,
    /// Sleeps about 50 microseconds: for machines with fewer CPUs than threads.
    Sleep,
}

/// `[[port]]`.
#[derive(Clone, Debug)]
pub struct Port {
    /// Its name here, in status and metrics.
    pub name: String,
    /// DPDK devargs ("net_af_packet0,iface=eth1") or a PCI address ("0000:3b:00.0").
    pub device: String,
    /// `role = "service" | "mirror" | "bridge"`, with `pair` for a bridge.
    pub role: Role,
    /// Service addresses answered on this port; on a mirror port, where GRE and ERSPAN copies are sent to.
    pub addresses: Vec<IpAddr>,
    /// `mtu = 1500`: set on the port if given.
    pub mtu: Option<u16>,
    /// `verify_udp_checksum = true`: false accepts what local senders left unfilled (veth labs).
    pub verify_udp_checksum: bool,
    /// `rx_descriptors` and `tx_descriptors`, default 1024, adjusted to what the driver takes.
    pub rx_descriptors: u16,
    /// See `rx_descriptors`.
    pub tx_descriptors: u16,
}

/// `[dns]`: how answers are shaped.
#[derive(Clone, Debug)]
pub struct Dns {
    /// `udp_size_max = 1232`: largest UDP reply and the advertised EDNS size, 512 to 1400 bytes.
    pub udp_size_max: u16,
    /// `nsid = "..."`: NSID value (RFC 5001) and answer to id.server, at most 64 bytes.
    pub nsid: Option<String>,
    /// `ecs = true`: whether client subnets (RFC 7871) are honoured.
    pub ecs: bool,
    /// `version = "..."`: answer to version.bind and version.server in class CH; REFUSED without.
    pub version: Option<String>,
    /// `hostname = "..."`: answer to hostname.bind; REFUSED without.
    pub hostname: Option<String>,
    /// `[dns.cookies]`.
    pub cookies: Cookies,
    /// `[dns.rate_limit]`; off without.
    pub rate_limit: Option<RateLimit>,
    /// `[dns.tcp]`.
    pub tcp: Tcp,
}

impl Default for Dns {
    fn default() -> Self {
        Self {
            udp_size_max: 1232,
            nsid: None,
            ecs: true,
            version: None,
            hostname: None,
            cookies: Cookies::default(),
            rate_limit: None,
            tcp: Tcp::default(),
        }
    }
}

/// `[dns.cookies]` (RFC 7873).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cookies {
    /// `mode = "on" | "off" | "require"`.
    pub mode: CookieMode,
    /// What `secret_file` holds; `None`: one is generated at start.
    pub secrets: Option<Secrets>,
}

/// How COOKIE options are dealt with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CookieMode {
    /// Every client that sends a cookie gets one; nobody needs one.
    #[default]
    On,
    /// The option is ignored.
    Off,
    /// Over UDP, who sends a cookie without a server cookie of ours gets BADCOOKIE and no answer.
    Require,
}

/// `[dns.rate_limit]`: response rate limiting, over all workers together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RateLimit {
    /// `responses_per_second = 200`: replies of one kind to one client prefix.
    pub per_second: u32,
    /// `burst`: how many may come at once; default `responses_per_second`.
    pub burst: u32,
    /// `slip = 2`: of so many over the limit one is sent empty with TC; 0: none.
    pub slip: u8,
    /// `ipv4_prefix = 24`, bits.
    pub prefix_v4: u8,
    /// `ipv6_prefix = 56`, bits.
    pub prefix_v6: u8,
    /// `allow = ["192.0.2.0/24"]`: clients that are never limited.
    pub allow: Vec<IpNet>,
}

/// `[dns.tcp]`: DNS over TCP (RFC 7766). Changing it needs a restart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tcp {
    /// `enabled = true`: without it TCP to a service address gets no reply.
    pub enabled: bool,
    /// `idle_timeout = "10s"`: a connection that brings no whole query for so long is closed.
    pub idle_timeout: Duration,
    /// `connections = 1000`: open at once, in all.
    pub connections: u32,
    /// `connections_per_client = 20`: of one IPv4 address or one IPv6 /64.
    pub connections_per_client: u32,
    /// `packets_per_second = 50000`: what reaches the kernel's TCP at most; the rest is dropped by the workers.
    pub packets_per_second: u32,
}

impl Default for Tcp {
    fn default() -> Self {
        Self {
            enabled: true,
            idle_timeout: Duration::from_secs(10),
            connections: 1000,
            connections_per_client: 20,
            packets_per_second: 50_000,
        }
    }
}

/// `[[isp]]`: a named set of autonomous systems and prefixes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Isp {
    /// Its name.
    pub name: String,
    /// Its autonomous systems; their prefixes are in the databases of `[data]`.
    pub asns: Vec<u32>,
    /// Client prefixes; they count over the databases.
    pub prefixes: Vec<IpNet>,
}

/// `[[clients]]`: client prefixes that the operator has a name for (an office, a region, a network), and where they are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Clients {
    /// The name.
    pub name: String,
    /// `file`, if it has one.
    pub file: Option<PathBuf>,
    /// The prefixes of `prefixes` and of the file, in that order. Several names may have the same ones.
    pub prefixes: Vec<ClientPrefix>,
}

/// A prefix of a [`Clients`] list, with what is said of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientPrefix {
    /// The prefix.
    pub prefix: IpNet,
    /// Its ISP: index into [`Config::isps`].
    pub isp: Option<usize>,
    /// Where it is.
    pub place: Place,
}

/// What of `[selection]` is the same for all services.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selection {
    /// `capacity = { ... }`: it acts on sites, for all services at once.
    pub capacity: chain::capacity::Parameters,
}

/// `[[site]]`: a place with servers.
#[derive(Clone, Debug)]
pub struct Site {
    /// Its name.
    pub name: String,
    /// Index into [`Config::isps`] of the ISP that it stands in.
    pub isp: Option<usize>,
    /// `location = [lat, lon]`, degrees.
    pub location: Option<(f64, f64)>,
    /// `preference = 128`: 0 to 255, highest wins, 0 takes the site out.
    pub preference: u8,
    /// `country = "KR"`: where it is.
    pub country: Option<Country>,
    /// `continent = "asia"`: where it is.
    pub continent: Option<Continent>,
    /// `bias = 0`: -99 to 99, makes it seem nearer (above 0) or farther than it is.
    pub bias: i8,
    /// `serves = ["office"]`: indices into [`Config::clients`] of those that it is the place for.
    pub serves: Vec<u32>,
    /// `sessions_max = 900_000`: sessions that its servers can hold, together.
    pub sessions_max: Option<u64>,
    /// `bandwidth_max = "900Mbps"`: bits per second.
    pub bandwidth_max_bps: Option<u64>,
    /// `connections_per_second_max = 5000`: new connections a second, over the limit of `connection_load`.
    pub connections_max: Option<u64>,
    /// What `token_file` holds: a report with one of them is the site's. Empty: the site does not report.
    pub tokens: Vec<Token>,
    /// `on_silence = "ignore" | "avoid"`.
    pub on_silence: OnSilence,
}

impl Default for Site {
    fn default() -> Self {
        Self {
            name: String::new(),
            isp: None,
            location: None,
            preference: 128,
            country: None,
            continent: None,
            bias: 0,
            serves: Vec::new(),
            sessions_max: None,
            bandwidth_max_bps: None,
            connections_max: None,
            tokens: Vec::new(),
            on_silence: OnSilence::Ignore,
        }
    }
}

/// `[[zone]]` with its records.
#[derive(Clone, Debug)]
pub struct Zone {
    /// The apex.
    pub apex: Name,
    /// Its zone file.
    pub file: PathBuf,
    /// Every record set: owner, type, TTL and RDATA (uncompressed wire form, no duplicates). The
    /// SOA is at the apex, exactly one record.
    pub rrsets: Vec<Rrset>,
}

/// One record set of a zone.
#[derive(Clone, Debug)]
pub struct Rrset {
    /// Owner name.
    pub owner: Name,
    /// RR type.
    pub rtype: u16,
    /// TTL in seconds, one for the set (RFC 2181 section 5.2).
    pub ttl: u32,
    /// RDATA of each record, uncompressed wire form, in file order.
    pub rdata: Vec<Vec<u8>>,
}

/// `[[service]]`: a DNS name whose answers are chosen.
#[derive(Clone, Debug)]
pub struct Service {
    /// Its name; lies in a zone of this appliance.
    pub name: Name,
    /// TTL of its answers, seconds.
    pub ttl: u32,
    /// TTL of its answers while a member is down or has less than its share, seconds.
    pub ttl_degraded: u32,
    /// Addresses in an answer, 1 to 16.
    pub answers: u8,
    /// `fill = false`: when the best sites have fewer members than an answer has addresses, those of the next follow,
    /// for clients that try addresses in turn.
    pub fill: bool,
    /// `ecs = true`: whether client subnets (RFC 7871) are honoured for it, if they are at all.
    pub ecs: bool,
    /// The chain, in order; `static` is last.
    pub chain: Vec<Metric>,
    /// How `static` spreads.
    pub spread: Spread,
    /// What is answered when no member is up.
    pub when_all_down: AllDown,
    /// Its members, in file order, unique addresses.
    pub members: Vec<Member>,
    /// Members that are names, in file order, each once: CNAME records are handed out. They count as up.
    pub cnames: Vec<CnameMember>,
    /// Preference per site for this service, over the site's own: (site index, 0 to 255).
    pub preference: Vec<(usize, u8)>,
    /// `prefer = [...]`: preferences for some clients, over those.
    pub prefer: Vec<Prefer>,
    /// What its metrics go by: `latency = { ... }` and so on, over `[selection]`.
    pub parameters: chain::Parameters,
    /// `on_silence`: over the sites' own, for this service.
    pub on_silence: Option<OnSilence>,
    /// Health check of its members; `None`: always up.
    pub check: Option<Check>,
}

impl Default for Service {
    /// One without members at the root.
    fn default() -> Self {
        Self {
            name: Name::root_vec(),
            ttl: 30,
            ttl_degraded: 15,
            answers: 1,
            fill: false,
            ecs: true,
            chain: Metric::USUAL.to_vec(),
            spread: Spread::RoundRobin,
            when_all_down: AllDown::LastGood,
            members: Vec::new(),
            cnames: Vec::new(),
            preference: Vec::new(),
            prefer: Vec::new(),
            parameters: chain::Parameters::default(),
            on_silence: None,
            check: None,
        }
    }
}

/// One entry of `prefer`: `{ isp = "KT", site = "seoul-kt" }`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prefer {
    /// Index into [`Config::sites`].
    pub site: usize,
    /// What it does for which clients.
    pub bound: chain::preference::Bound,
}

/// One metric of a chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Metric {
    /// Members that are down drop out.
    Health,
    /// Sites over their limits of sessions or bandwidth drop out; those near to them are given less often.
    Capacity,
    /// Sites in the client's ISP stay, if there are any.
    Isp,
    /// Sites from which the client is as near in time as from the best stay.
    Latency,
    /// Sites for the client's region, country or continent, or the nearest, stay.
    Geo,
    /// Sites that get more new connections a second than the limit drop out.
    ConnectionLoad,
    /// Sites with as many free sessions as the one with most stay.
    AvailableSessions,
    /// Sites with the highest preference stay.
    Preference,
    /// Those given least often lately stay; drawn by the worker.
    LeastSelected,
    /// Draws among what is left.
    Static,
}

impl Metric {
    /// All that there are.
    pub const ALL: [Self; 10] = [
        Self::Health,
        Self::Capacity,
        Self::Isp,
        Self::Latency,
        Self::Geo,
        Self::ConnectionLoad,
        Self::AvailableSessions,
        Self::Preference,
        Self::LeastSelected,
        Self::Static,
    ];
    /// The chain of a service that names none, where `[selection]` names none.
    pub const USUAL: [Self; 5] = [
        Self::Health,
        Self::Capacity,
        Self::Isp,
        Self::Preference,
        Self::Static,
    ];

    /// Its name in a chain.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Health => "health",
            Self::Capacity => "capacity",
            Self::Isp => "isp",
            Self::Latency => "latency",
            Self::Geo => "geo",
            Self::ConnectionLoad => "connection-load",
            Self::AvailableSessions => "available-sessions",
            Self::Preference => "preference",
            Self::LeastSelected => "least-selected",
            Self::Static => "static",
        }
    }
}

/// `static = "round-robin" | "weighted" | "consistent-hash"`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Spread {
    /// In turn, per worker.
    RoundRobin,
    /// At random, in proportion to the members' weights.
    Weighted,
    /// Clients of one prefix get the same members, by weight; a change of members or weights moves only those that must
    /// move. `{ kind = "consistent-hash", ipv4_prefix = 24, ipv6_prefix = 48 }`.
    ConsistentHash {
        /// Bits of an IPv4 address that are hashed, 0 to 32.
        prefix_v4: u8,
        /// Of an IPv6 address, 0 to 64.
        prefix_v6: u8,
    },
}

/// `when_all_down`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum AllDown {
    /// The members that were up last.
    LastGood,
    /// All members, as if up.
    Open,
    /// No address: NODATA.
    Closed,
    /// These addresses: `when_all_down = { fixed = ["192.0.2.9"] }`.
    Fixed(Vec<IpAddr>),
}

/// One address that can be handed out, at a site.
#[derive(Clone, Debug)]
pub struct Member {
    /// The address.
    pub address: IpAddr,
    /// Index into [`Config::sites`].
    pub site: usize,
    /// 0 to 65535, default 1. 0: only when no member with a weight is up.
    pub weight: u16,
}

/// One name that can be handed out, at a site.
#[derive(Clone, Debug)]
pub struct CnameMember {
    /// The name.
    pub name: Name,
    /// Index into [`Config::sites`].
    pub site: usize,
    /// As of a [`Member`].
    pub weight: u16,
}
