//! What the admin API says, as serde types: the appliance fills them in, the server sends them as
//! JSON, the command line reads them back. Durations carry their unit in the name.
// LONG: one list of types with a line of meaning for each field, and nothing else.

use super::latency::{LatencyReport, LatencyStatus};
use crate::alerts::{Event, WebhookStatus};
use crate::health::{Standing, State, TargetStatus};
use crate::overrides::Override;
use dataplane::counters::Counters;
use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::future::Future;
use std::net::IpAddr;
use std::pin::Pin;

/// The running appliance as the admin API sees it. Implemented by the run loop. The plain methods
/// are called on the runtime's threads: short locks at most.
pub trait Appliance: Send + Sync + 'static {
    /// `GET /v1/status`, and what `/metrics` needs beside the counters.
    fn status(&self) -> Status;

    /// `GET /v1/explain`.
    ///
    /// # Errors
    /// The question cannot be explained: what is wrong with it, in one line.
    fn explain(&self, request: &ExplainRequest) -> Result<Explanation, String>;

    /// `POST /v1/reload`. Fails with every finding when the old configuration stays.
    fn reload(&self) -> ReloadFuture<'_>;

    /// `GET /v1/events`.
    fn events(&self) -> Events;

    /// `GET /v1/latency`, and what `/metrics` tells of it.
    fn latency(&self) -> LatencyReport;

    /// `GET /v1/overrides`, in the order in which they count: the last that matches a member.
    fn overrides(&self) -> Vec<Override>;

    /// `POST /v1/overrides`.
    ///
    /// # Errors
    /// What is wrong with it; nothing changed.
    fn set_override(&self, request: &OverrideRequest) -> Result<OverrideReport, String>;

    /// `DELETE /v1/overrides`: the one with this glob, or all; returns them.
    ///
    /// # Errors
    /// There is none; nothing changed.
    fn clear_overrides(&self, glob: Option<&str>) -> Result<Vec<Override>, String>;

    /// Every worker's index and counters, for `/metrics`.
    fn worker_counters(&self) -> Vec<(usize, Counters)>;
}

/// What [`Appliance::reload`] returns.
pub type ReloadFuture<'a> = Pin<Box<dyn Future<Output = Result<ReloadReport, String>> + Send + 'a>>;

/// The state of an appliance.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// Its name, from the configuration.
    pub appliance: String,
    /// Version of the binary.
    pub version: String,
    /// Seconds since it started.
    pub uptime_s: u64,
    /// Generation of the newest published snapshot.
    pub generation: u64,
    /// Hash of the live configuration and its zone files.
    pub config_hash: String,
    /// When that configuration was loaded, Unix time in seconds.
    pub config_loaded_at: u64,
    /// The workers, by index.
    pub workers: Vec<WorkerStatus>,
    /// DNS over TCP; `None` where it is disabled.
    #[serde(default)]
    pub tcp: Option<TcpStatus>,
    /// Where sites report to; `None` where they do not.
    #[serde(default)]
    pub reports: Option<ReportsStatus>,
    /// What becomes of latency samples; `None` where no port measures.
    #[serde(default)]
    pub latency: Option<LatencyStatus>,
    /// The ports, in the order of the configuration.
    pub ports: Vec<PortStatus>,
    /// The sites, in the order of the configuration.
    pub sites: Vec<SiteStatus>,
    /// Client data and what was made of it.
    #[serde(default)]
    pub clients: ClientsStatus,
    /// The services, in the order of the configuration.
    pub services: Vec<ServiceStatus>,
    /// The checks as a whole.
    #[serde(default)]
    pub checks: ChecksStatus,
    /// The overrides, in the order in which they count.
    #[serde(default)]
    pub overrides: Vec<Override>,
    /// Events told since start.
    #[serde(default)]
    pub events: u64,
}

/// The checks of all targets: a dead loop is seen by the age of the oldest.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ChecksStatus {
    /// Targets that are checked.
    pub targets: usize,
    /// Those whose checks are due and do not complete.
    pub stale: usize,
    /// Seconds since a check completed of the target that was not checked for longest; `None` without targets.
    pub oldest_age_s: Option<f64>,
    /// Check tasks that died or hung and were started anew.
    pub restarts: u64,
}

/// What is to become of members: the query of `POST /v1/overrides`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OverrideRequest {
    /// Which members: a glob over `SITE/ADDRESS`.
    pub glob: String,
    /// `down`, `up`, `drain` or `weight`.
    pub action: String,
    /// Percent, for `weight`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weight: Option<u8>,
    /// Ends after so many seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub for_s: Option<u64>,
    /// Why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub comment: Option<String>,
}

/// What an override did.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OverrideReport {
    /// The override as it is set.
    pub set: Override,
    /// Members that it matches.
    pub members: usize,
}

/// Which override is to be cleared: the query of `DELETE /v1/overrides`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClearRequest {
    /// Its glob; all if none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub glob: Option<String>,
}

/// What happened, and who was told.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Events {
    /// The last events, the newest last.
    pub events: Vec<Event>,
    /// The webhooks, in the order of the configuration.
    pub webhooks: Vec<WebhookStatus>,
}

/// Client data, and the classes that were made of it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ClientsStatus {
    /// Client classes, with the one of whom nothing is known.
    pub classes: usize,
    /// Prefixes that lead to them, IPv4 and IPv6.
    pub prefixes: (usize, usize),
    /// Prefixes that RTTs are measured to and that are classes of their own.
    pub measured: usize,
    /// Locations are rounded to so many degrees, since there are too many; `None`: they are as known.
    pub location_grid: Option<f64>,
    /// ISPs, in the order of the configuration.
    pub isps: Vec<IspStatus>,
    /// Databases, in the order of the configuration.
    pub databases: Vec<DatabaseStatus>,
}

/// One ISP.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct IspStatus {
    /// Its name.
    pub name: String,
    /// Its autonomous systems.
    pub asns: usize,
    /// Prefixes of the table that lead to it, IPv4 and IPv6: neighbours of one class are one, and none where no chain looks
    /// at the ISP.
    pub prefixes: (usize, usize),
}

/// One database of client data.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DatabaseStatus {
    /// The file.
    pub file: String,
    /// "asn" or "country".
    pub kind: String,
    /// Rows of the file.
    pub rows: usize,
    /// Different values: autonomous systems, or places.
    pub values: usize,
    /// When the file was last changed, Unix time in seconds.
    pub modified_at: u64,
}

/// One worker.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct WorkerStatus {
    /// Its index.
    pub index: usize,
    /// CPU that it is pinned to.
    pub core: usize,
    /// Packets received since start.
    pub received: u64,
    /// Packets replied to.
    pub replied: u64,
    /// Packets transmitted.
    pub transmitted: u64,
    /// Packets dropped, for any reason.
    pub dropped: u64,
    /// The reasons that occurred, by counter name.
    pub dropped_by_reason: BTreeMap<String, u64>,
    /// Bytes of DNS replies over bytes of the queries that got one, since start: how much a forged query
    /// would be amplified. `None` before the first reply.
    #[serde(default)]
    pub dns_byte_ratio: Option<f64>,
    /// Share of polls that found a packet, 0 to 1.
    pub busy_share: f64,
    /// Longest time between two loop turns since start, microseconds.
    pub loop_gap_max_us: f64,
    /// It has stood still for longer than a worker may.
    pub stalled: bool,
    /// Generation of the snapshot that it answers by; 0 before the first.
    pub generation: u64,
    /// Snapshots published to it.
    pub published: u64,
    /// Snapshots that it adopted.
    pub adopted: u64,
    /// Snapshots replaced by a newer one before it took them.
    pub superseded: u64,
    /// Snapshots that it handed back.
    pub retired: u64,
}

/// DNS over TCP, since start. The names of counters are those of `/metrics`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TcpStatus {
    /// Connections open now.
    pub open: u64,
    /// What became of connections.
    pub connections: BTreeMap<String, u64>,
    /// Replies by outcome.
    pub replies: BTreeMap<String, u64>,
    /// Messages that got no reply: responses.
    pub ignored: u64,
    /// Bytes of queries that got a reply.
    pub query_bytes: u64,
    /// Bytes of replies.
    pub reply_bytes: u64,
    /// What became of the packets that workers punted.
    pub punted: BTreeMap<String, u64>,
    /// What became of the packets that the kernel sent.
    pub sent: BTreeMap<String, u64>,
}

/// One port, with the driver's own counts since start.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PortStatus {
    /// Its name, from the configuration.
    pub name: String,
    /// Devargs or PCI address.
    pub device: String,
    /// Name of the DPDK driver.
    pub driver: String,
    /// MAC address, `aa:bb:cc:dd:ee:ff`.
    pub mac: String,
    /// MTU, bytes.
    pub mtu: u16,
    /// The link is up.
    pub link_up: bool,
    /// Link speed, Mb/s; 0 when the driver does not know.
    pub link_mbps: u32,
    /// Packets received.
    pub rx_packets: u64,
    /// Packets transmitted.
    pub tx_packets: u64,
    /// Bytes received.
    pub rx_bytes: u64,
    /// Bytes transmitted.
    pub tx_bytes: u64,
    /// Packets that the port dropped because its receive queues were full (`imissed`).
    pub imissed: u64,
    /// Erroneous packets received (`ierrors`).
    pub ierrors: u64,
    /// Packets that failed to transmit (`oerrors`).
    pub oerrors: u64,
    /// Receives that failed for want of buffers (`rx_nombuf`).
    pub rx_nombuf: u64,
}

/// One site.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SiteStatus {
    /// Its name.
    pub name: String,
    /// The ISP that it stands in.
    pub isp: Option<String>,
    /// Members at it, over all services.
    pub members: usize,
    /// Those that are up.
    pub members_up: usize,
    /// What it says of itself; `None` when it is not to report.
    #[serde(default)]
    pub report: Option<SiteReportStatus>,
}

/// The receiver of sites' reports.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ReportsStatus {
    /// Where it listens.
    pub listen: String,
    /// SHA-256 of its certificate, hexadecimal: what agents pin.
    pub fingerprint: String,
    /// What became of connections and requests, since start. The names are those of `/metrics`.
    pub requests: BTreeMap<String, u64>,
    /// Prefixes that round-trip times are known of or wanted of.
    pub rtt_prefixes: usize,
    /// Every site that is to report is silent: none is avoided for it.
    pub feed_down: bool,
}

/// What a site says of itself. Values of a silent site are those of its last report.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SiteReportStatus {
    /// Its last report is too old, or none has come for too long.
    pub silent: bool,
    /// What becomes of it when it is silent, unless a service says otherwise: `ignore` or `avoid`.
    pub on_silence: String,
    /// Seconds since its last report came; `None` before the first.
    pub age_s: Option<f64>,
    /// Where that came from.
    pub from: Option<IpAddr>,
    /// Its sequence number.
    pub sequence: Option<u64>,
    /// Reports taken since start.
    pub taken: u64,
    /// Sessions open.
    pub sessions: Option<u64>,
    /// Bandwidth in use, bits per second.
    pub bandwidth_bps: Option<u64>,
    /// New connections per second, averaged over five reports.
    pub connections_per_second: Option<u64>,
    /// Members that it reports as up, and as down.
    pub members: (usize, usize),
    /// Prefixes with a round-trip time from it.
    pub rtts: usize,
}

/// One service.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ServiceStatus {
    /// Its name.
    pub name: String,
    /// Its members, in the order of the configuration.
    pub members: Vec<MemberStatus>,
}

/// One member of one service.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MemberStatus {
    /// Its address, or the name that it is.
    pub address: String,
    /// Name of its site.
    pub site: String,
    /// What the checks say of it.
    pub state: State,
    /// Seconds since that changed; `None` without a check.
    pub since_s: Option<f64>,
    /// Seconds since a check of it last completed; `None` without a check or before the first.
    pub last_check_age_s: Option<f64>,
    /// How long that check took, milliseconds.
    pub last_check_ms: Option<f64>,
    /// Checks are due and do not complete: the state is old.
    pub stale: bool,
    /// What the last check found.
    pub reason: String,
    /// Its weight.
    pub weight: u16,
    /// It can be given, all told.
    #[serde(default = "yes")]
    pub given: bool,
    /// How often it is a candidate when it could be, sixteenths; 0: only when no other is left.
    #[serde(default = "whole")]
    pub share: u8,
    /// Why its share is not whole: a brown-out, a slow start, flapping.
    #[serde(default)]
    pub remark: Option<String>,
    /// The override that counts for it.
    #[serde(default, rename = "override")]
    pub overridden: Option<String>,
    /// The state is from before the start: no check has completed since.
    #[serde(default)]
    pub remembered: bool,
}

fn yes() -> bool {
    true
}

fn whole() -> u8 {
    Standing::WHOLE
}

impl MemberStatus {
    /// From what the prober knows of it; `None`: its service has no check, and it counts as up.
    pub fn new(address: String, site: String, weight: u16, target: Option<&TargetStatus>) -> Self {
        let unchecked = Self {
            address,
            site,
            weight,
            state: State::Up,
            since_s: None,
            last_check_age_s: None,
            last_check_ms: None,
            stale: false,
            reason: "no check".into(),
            given: true,
            share: Standing::WHOLE,
            remark: None,
            overridden: None,
            remembered: false,
        };
        let Some(target) = target else { return unchecked };
        Self {
            state: target.state,
            since_s: Some(target.since.as_secs_f64()),
            last_check_age_s: target.last_check_age.map(|age| age.as_secs_f64()),
            last_check_ms: target.last_duration.map(|took| took.as_secs_f64() * 1e3),
            stale: target.stale,
            reason: target.reason.clone(),
            given: target.standing.up,
            share: target.standing.share,
            remark: target.remark.clone(),
            remembered: target.remembered,
            ..unchecked
        }
    }

    /// The same under an override.
    pub fn overridden(self, over: Option<&Override>) -> Self {
        let Some(over) = over else { return self };
        let standing = over.action.apply(Standing {
            up: self.given,
            share: self.share,
        });
        Self {
            given: standing.up,
            share: standing.share,
            overridden: Some(over.to_string()),
            ..self
        }
    }
}

/// What is to be explained: the query of `GET /v1/explain`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExplainRequest {
    /// The name asked for.
    pub name: String,
    /// The RR type asked for: mnemonic or `TYPE123`.
    #[serde(rename = "type", default = "ExplainRequest::default_type")]
    pub rtype: String,
    /// Source address of the query.
    pub from: IpAddr,
    /// Client subnet in the query (RFC 7871).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ecs: Option<IpNet>,
}

impl ExplainRequest {
    fn default_type() -> String {
        "A".into()
    }
}

/// Why a client gets an answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Explanation {
    /// What was asked, `NAME TYPE`.
    pub question: String,
    /// The address or prefix that the choice went by.
    pub client: String,
    /// Where that came from.
    pub client_source: ClientSource,
    /// The client class that it fell into.
    pub class: String,
    /// The client's ISP, if one is known.
    pub isp: Option<String>,
    /// Apex of the zone that holds the name, or the last that it leads to; `None`: not served here.
    pub zone: Option<String>,
    /// How the answer was come to when it does not stand at the name itself: wildcard, DNAME, cut, or nothing there.
    #[serde(default)]
    pub path: Vec<String>,
    /// The service, when the name is one.
    pub service: Option<String>,
    /// Its policy: the chain and what shapes it, in one line.
    pub policy: Option<String>,
    /// What each metric of the chain did, in order.
    pub steps: Vec<Step>,
    /// What the chain left: members in the order that they would be fallen back on.
    pub tiers: Vec<Vec<String>>,
    /// The share of the queries that try what is not measured, and their tiers; `None`: the policy has none.
    #[serde(default)]
    pub explore: Option<Explore>,
    /// How the answer was drawn from the tiers.
    pub draw: Option<String>,
    /// The answer's records or addresses, in order.
    pub answer: Vec<String>,
    /// Records of the authority section: of a referral or a negative answer.
    #[serde(default)]
    pub authority: Vec<String>,
    /// RCODE mnemonic.
    pub rcode: String,
    /// What it counts as, by counter name: `answer`, `nodata`, `referral` and so on.
    #[serde(default)]
    pub outcome: String,
    /// It has no room over UDP, even for who takes 1,232 bytes: TC is set, and nothing is in it.
    #[serde(default)]
    pub truncated: bool,
    /// Extended error (RFC 8914), as text.
    #[serde(default)]
    pub extended_error: Option<String>,
    /// TTL of the answer, seconds.
    pub ttl: Option<u32>,
    /// ECS scope prefix length of the answer; `None` when the query had no ECS.
    pub scope: Option<u8>,
    /// Generation of the snapshot that answered.
    pub generation: u64,
}

/// Where the client address came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ClientSource {
    /// The source address of the query's packet.
    Transport,
    /// The client subnet option.
    Ecs,
}

/// One metric of the chain at work.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Step {
    /// The metric, as in the configuration.
    pub metric: String,
    /// Candidates before it.
    pub before: Vec<String>,
    /// Candidates after it.
    pub after: Vec<String>,
    /// What it went by.
    pub text: String,
    /// What it found of each site.
    #[serde(default)]
    pub sites: Vec<SiteStep>,
}

/// What a metric found of a site.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SiteStep {
    /// The site.
    pub site: String,
    /// What was read, with its unit; `None`: there was nothing to read.
    pub value: Option<String>,
    /// Seconds since that was so.
    pub age_s: Option<f64>,
    /// Whether the site stays.
    pub kept: bool,
    /// What became of it and why; may be empty.
    pub why: String,
}

/// What the queries that explore go by.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Explore {
    /// How many of all queries, such as "5%".
    pub share: String,
    /// As the tiers of the others.
    pub tiers: Vec<Vec<String>>,
}

/// What a reload did.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ReloadReport {
    /// Generation of the snapshot published by it.
    pub generation: u64,
    /// Hash of the configuration that is now live.
    pub config_hash: String,
    /// What was odd about it, or needs a restart to take effect.
    pub warnings: Vec<String>,
}

/// The body of every answer that is not a success.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ErrorBody {
    /// What is wrong.
    pub error: String,
}
