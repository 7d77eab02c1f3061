//! `/metrics`: status and counters in the Prometheus text format. Called by the server once a
//! scrape; nothing is kept between scrapes, the numbers are the workers' and the prober's own.

use super::api::{
    DatabaseStatus, MemberStatus, PortStatus, ServiceStatus, SiteReportStatus, Status, WorkerStatus,
};
use super::latency::LatencyReport;
use crate::health::{Standing, State};
use crate::reports::counters::Received;
use crate::tcp::counters::{Connection, Labelled, Punted, Sent};
use dataplane::counters::{Counter, Counters, Kind};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{
    DescriptorEncoder, EncodeCounterValue, EncodeGaugeValue, EncodeLabelSet, NoLabelSet, prometheus_text,
};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Registry;
use std::collections::BTreeMap;
use std::fmt;

pub use prometheus_text::CONTENT_TYPE;

/// Everything as one scrape's text.
pub fn render(status: Status, counters: Vec<(usize, Counters)>, latency: LatencyReport) -> String {
    let mut registry = Registry::with_prefix("windrose");
    registry.register_collector(Box::new(Scrape {
        status,
        counters,
        latency,
    }));
    let mut text = String::new();
    prometheus_text::encode(&mut text, &registry).expect("writing to a string does not fail");
    text
}

#[derive(Debug)]
struct Scrape {
    status: Status,
    counters: Vec<(usize, Counters)>,
    latency: LatencyReport,
}

impl Collector for Scrape {
    fn encode(&self, encoder: DescriptorEncoder) -> fmt::Result {
        let mut families = Families(encoder);
        self.appliance(&mut families)?;
        self.counters(&mut families)?;
        self.workers(&mut families)?;
        self.tcp(&mut families)?;
        self.ports(&mut families)?;
        self.reports(&mut families)?;
        self.clients(&mut families)?;
        super::latency_metrics::encode(&self.status, &self.latency, &mut families)?;
        self.health(&mut families)
    }
}

/// Writes whole families.
pub(super) struct Families<'a>(DescriptorEncoder<'a>);

impl Families<'_> {
    /// A counter; `name` is without its `_total`.
    pub(super) fn counter<L: EncodeLabelSet, V: EncodeCounterValue>(
        &mut self,
        name: &str,
        help: &str,
        samples: impl IntoIterator<Item = (L, V)>,
    ) -> fmt::Result {
        let mut family = self.0.encode_descriptor(name, help, None, MetricType::Counter)?;
        for (labels, value) in samples {
            family
                .encode_family(&labels)?
                .encode_counter::<NoLabelSet, _, f64>(&value, None)?;
        }
        Ok(())
    }

    /// A gauge.
    pub(super) fn gauge<L: EncodeLabelSet, V: EncodeGaugeValue>(
        &mut self,
        name: &str,
        help: &str,
        samples: impl IntoIterator<Item = (L, V)>,
    ) -> fmt::Result {
        let mut family = self.0.encode_descriptor(name, help, None, MetricType::Gauge)?;
        for (labels, value) in samples {
            family.encode_family(&labels)?.encode_gauge(&value)?;
        }
        Ok(())
    }
}

impl Families<'_> {
    /// A family whose label tells its members apart. Its help explains each.
    fn labelled<T: Labelled>(
        &mut self,
        name: &str,
        label: &str,
        what: &str,
        values: &BTreeMap<String, u64>,
    ) -> fmt::Result {
        let mut help = what.to_owned();
        for member in T::ALL {
            help.push_str(&format!(" {}: {}", member.name(), member.help()));
        }
        let samples = values
            .iter()
            .map(|(name, count)| ([(label, name.as_str())], *count));
        self.counter(name, &help, samples)
    }
}

/// No labels.
pub(super) const BARE: [(&str, &str); 0] = [];

impl Scrape {
    fn appliance(&self, families: &mut Families<'_>) -> fmt::Result {
        let status = &self.status;
        let info = [
            ("appliance", &status.appliance),
            ("version", &status.version),
            ("config_hash", &status.config_hash),
        ];
        families.gauge(
            "info",
            "The appliance, its version and the hash of its live configuration; always 1.",
            [(info, 1_u64)],
        )?;
        families.gauge(
            "uptime_seconds",
            "Seconds since the appliance started.",
            [(BARE, status.uptime_s)],
        )?;
        families.gauge(
            "snapshot_generation",
            "Generation of the newest published snapshot.",
            [(BARE, status.generation)],
        )?;
        families.gauge(
            "config_loaded_timestamp_seconds",
            "When the live configuration was loaded, Unix time.",
            [(BARE, status.config_loaded_at)],
        )
    }

    /// Every counter of the workers: drops and DNS outcomes as one family each, the others alone.
    fn counters(&self, families: &mut Families<'_>) -> fmt::Result {
        for &counter in Counter::ALL {
            let name = match (counter.kind(), counter) {
                (Kind::Drop | Kind::Dns, _) => continue,
                // A maximum in ticks of this machine's clock: told in seconds below.
                (_, Counter::LoopGapTicksMax) => continue,
                (Kind::Packets, _) => format!("{}_packets", counter.name()),
                (Kind::Worker, _) => counter.name().to_owned(),
            };
            let samples = self
                .counters
                .iter()
                .map(|(worker, all)| ([("worker", *worker)], all.get(counter)));
            families.counter(&name, counter.help(), samples)?;
        }
        self.split(
            families,
            Kind::Drop,
            "dropped_packets",
            "reason",
            "Received packets that were dropped.",
        )?;
        self.split(
            families,
            Kind::Dns,
            "dns_replies",
            "outcome",
            "Replies to DNS queries.",
        )
    }

    /// One family whose label tells the counters of a kind apart. Its help explains each.
    fn split(
        &self,
        families: &mut Families<'_>,
        kind: Kind,
        name: &str,
        label: &'static str,
        what: &str,
    ) -> fmt::Result {
        let of_kind = || Counter::ALL.iter().copied().filter(move |c| c.kind() == kind);
        let mut help = what.to_owned();
        for counter in of_kind() {
            help.push_str(&format!(" {}: {}", counter.name(), counter.help()));
        }
        let samples = self.counters.iter().flat_map(|(worker, all)| {
            let worker = worker.to_string();
            of_kind().map(move |c| {
                (
                    [("worker", worker.clone()), (label, c.name().to_owned())],
                    all.get(c),
                )
            })
        });
        families.counter(name, &help, samples)
    }

    fn workers(&self, families: &mut Families<'_>) -> fmt::Result {
        let workers = &self.status.workers;
        let each =
            |value: fn(&WorkerStatus) -> u64| workers.iter().map(move |w| ([("worker", w.index)], value(w)));
        families.counter(
            "snapshots_published",
            "Snapshots published to the worker.",
            each(|w| w.published),
        )?;
        families.counter(
            "snapshots_superseded",
            "Snapshots replaced by a newer one before the worker took them.",
            each(|w| w.superseded),
        )?;
        families.gauge(
            "worker_snapshot_generation",
            "Generation of the snapshot that the worker answers by; 0 before the first.",
            each(|w| w.generation),
        )?;
        families.gauge(
            "worker_stalled",
            "1 while the worker stands still.",
            each(|w| w.stalled.into()),
        )?;
        families.gauge(
            "worker_busy_ratio",
            "Share of polls that found a packet, 0 to 1.",
            workers.iter().map(|w| ([("worker", w.index)], w.busy_share)),
        )?;
        families.gauge(
            "dns_byte_ratio",
            "Bytes of DNS replies over bytes of the queries that got one, since start; none before the first.",
            workers
                .iter()
                .filter_map(|w| Some(([("worker", w.index)], w.dns_byte_ratio?))),
        )?;
        families.gauge(
            "worker_loop_gap_max_seconds",
            "Longest time between two loop turns since start.",
            workers
                .iter()
                .map(|w| ([("worker", w.index)], w.loop_gap_max_us / 1e6)),
        )
    }

    /// DNS over TCP; nothing where it is disabled.
    fn tcp(&self, families: &mut Families<'_>) -> fmt::Result {
        let Some(tcp) = &self.status.tcp else {
            return Ok(());
        };
        families.gauge(
            "tcp_connections_open",
            "DNS connections open now.",
            [(BARE, tcp.open)],
        )?;
        families.labelled::<Connection>(
            "tcp_connections",
            "event",
            "What becomes of DNS connections.",
            &tcp.connections,
        )?;
        families.counter(
            "tcp_replies",
            "Replies to DNS queries over TCP, by outcome as in dns_replies.",
            tcp.replies
                .iter()
                .map(|(name, count)| ([("outcome", name.as_str())], *count)),
        )?;
        families.counter(
            "tcp_ignored",
            "DNS messages over TCP that got no reply: responses.",
            [(BARE, tcp.ignored)],
        )?;
        families.counter(
            "tcp_query_bytes",
            "Bytes of DNS queries over TCP that got a reply.",
            [(BARE, tcp.query_bytes)],
        )?;
        families.counter(
            "tcp_reply_bytes",
            "Bytes of DNS replies over TCP.",
            [(BARE, tcp.reply_bytes)],
        )?;
        families.labelled::<Punted>(
            "exception_punted_packets",
            "fate",
            "What becomes of packets that workers punted.",
            &tcp.punted,
        )?;
        families.labelled::<Sent>(
            "exception_sent_packets",
            "fate",
            "What becomes of packets that the kernel sends.",
            &tcp.sent,
        )
    }

    fn ports(&self, families: &mut Families<'_>) -> fmt::Result {
        let ports = &self.status.ports;
        let each = |value: fn(&PortStatus) -> u64| {
            ports.iter().map(move |p| ([("port", p.name.as_str())], value(p)))
        };
        families.counter(
            "port_rx_packets",
            "Packets received by the port.",
            each(|p| p.rx_packets),
        )?;
        families.counter(
            "port_tx_packets",
            "Packets transmitted by the port.",
            each(|p| p.tx_packets),
        )?;
        families.counter(
            "port_rx_bytes",
            "Bytes received by the port.",
            each(|p| p.rx_bytes),
        )?;
        families.counter(
            "port_tx_bytes",
            "Bytes transmitted by the port.",
            each(|p| p.tx_bytes),
        )?;
        families.counter(
            "port_rx_missed",
            "Packets that the port dropped because its receive queues were full (imissed).",
            each(|p| p.imissed),
        )?;
        families.counter(
            "port_rx_errors",
            "Erroneous packets received (ierrors).",
            each(|p| p.ierrors),
        )?;
        families.counter(
            "port_tx_errors",
            "Packets that failed to transmit (oerrors).",
            each(|p| p.oerrors),
        )?;
        families.counter(
            "port_rx_nombuf",
            "Receives that failed for want of buffers (rx_nombuf).",
            each(|p| p.rx_nombuf),
        )?;
        families.gauge(
            "port_link_up",
            "1 while the port's link is up.",
            each(|p| p.link_up.into()),
        )
    }

    fn reports(&self, families: &mut Families<'_>) -> fmt::Result {
        let Some(status) = &self.status.reports else {
            return Ok(());
        };
        families.labelled::<Received>(
            "report_requests",
            "outcome",
            "What becomes of connections and requests to the receiver of reports.",
            &status.requests,
        )?;
        families.gauge(
            "report_feed_down",
            "1: every site that is to report is silent; none is avoided for it.",
            [(BARE, u64::from(status.feed_down))],
        )?;
        families.gauge(
            "report_rtt_prefixes",
            "Prefixes that round-trip times are known of or wanted of.",
            [(BARE, status.rtt_prefixes as u64)],
        )?;
        let each = || {
            let sites = self.status.sites.iter();
            sites.filter_map(|site| Some(([("site", site.name.as_str())], site.report.as_ref()?)))
        };
        families.gauge(
            "site_silent",
            "1: the site is to report and has not for too long.",
            each().map(|(labels, report)| (labels, u64::from(report.silent))),
        )?;
        families.counter(
            "site_reports",
            "Reports of the site that were taken.",
            each().map(|(labels, report)| (labels, report.taken)),
        )?;
        families.gauge(
            "site_report_age_seconds",
            "Seconds since the site's last report; none before the first.",
            each().filter_map(|(labels, report)| Some((labels, report.age_s?))),
        )?;
        type Value = fn(&SiteReportStatus) -> Option<u64>;
        let values: [(&str, &str, Value); 3] = [
            (
                "site_sessions",
                "Sessions open at the site, as it reported last.",
                |r| r.sessions,
            ),
            (
                "site_bandwidth_bits_per_second",
                "Bandwidth in use at the site, as it reported last.",
                |r| r.bandwidth_bps,
            ),
            (
                "site_connections_per_second",
                "New connections per second at the site, averaged over its last five reports.",
                |r| r.connections_per_second,
            ),
        ];
        for (name, help, value) in values {
            let samples = each().filter_map(|(labels, report)| Some((labels, value(report)?)));
            families.gauge(name, help, samples)?;
        }
        families.gauge(
            "site_rtts",
            "Prefixes with a round-trip time from the site.",
            each().map(|(labels, report)| (labels, report.rtts as u64)),
        )
    }

    fn clients(&self, families: &mut Families<'_>) -> fmt::Result {
        let clients = &self.status.clients;
        let families_of = |(v4, v6): (usize, usize)| [("ipv4", v4 as u64), ("ipv6", v6 as u64)];
        families.gauge(
            "client_classes",
            "Client classes, with the one of whom nothing is known.",
            [(BARE, clients.classes as u64)],
        )?;
        families.gauge(
            "client_prefixes",
            "Prefixes that lead to client classes.",
            families_of(clients.prefixes).map(|(family, n)| ([("family", family)], n)),
        )?;
        families.gauge(
            "client_prefixes_measured",
            "Prefixes that RTTs are measured to and that are classes of their own.",
            [(BARE, clients.measured as u64)],
        )?;
        families.gauge(
            "isp_prefixes",
            "Prefixes that lead to client classes of the ISP.",
            clients.isps.iter().flat_map(|isp| {
                families_of(isp.prefixes)
                    .map(|(family, n)| ([("isp", isp.name.as_str()), ("family", family)], n))
            }),
        )?;
        let each = |value: fn(&DatabaseStatus) -> u64| {
            let databases = clients.databases.iter();
            databases.map(move |d| ([("file", d.file.as_str()), ("kind", d.kind.as_str())], value(d)))
        };
        families.gauge(
            "database_rows",
            "Rows of a database of client data.",
            each(|d| d.rows as u64),
        )?;
        families.gauge(
            "database_modified_timestamp_seconds",
            "When the file of a database was last changed, Unix time.",
            each(|d| d.modified_at),
        )
    }

    fn health(&self, families: &mut Families<'_>) -> fmt::Result {
        let status = &self.status;
        let sites = || {
            status
                .sites
                .iter()
                .map(|site| [("site", site.name.as_str())])
                .zip(&status.sites)
        };
        families.gauge(
            "site_members",
            "Members at the site, over all services.",
            sites().map(|(labels, site)| (labels, site.members as u64)),
        )?;
        families.gauge(
            "site_members_up",
            "Members at the site that are up.",
            sites().map(|(labels, site)| (labels, site.members_up as u64)),
        )?;
        families.gauge(
            "member_up",
            "1: the member is up; 0: it is down, or nothing is known of it yet.",
            members(status).map(|(labels, m)| (labels, u64::from(m.state == State::Up))),
        )?;
        families.gauge(
            "member_share",
            "How often the member is a candidate when it could be, 0 to 1; 0: it is down, or given only when no other \
             is left.",
            members(status).map(|(labels, m)| {
                let share = if m.given { m.share } else { 0 };
                (labels, f64::from(share) / f64::from(Standing::WHOLE))
            }),
        )?;
        families.gauge(
            "member_overridden",
            "1: an override counts for the member.",
            members(status).map(|(labels, m)| (labels, u64::from(m.overridden.is_some()))),
        )?;
        families.gauge(
            "member_stale",
            "1: checks of the member are due and do not complete; its state is old.",
            members(status).map(|(labels, m)| (labels, u64::from(m.stale))),
        )?;
        families.gauge(
            "member_last_check_age_seconds",
            "Seconds since a check of the member last completed; none without a check.",
            members(status).filter_map(|(labels, m)| Some((labels, m.last_check_age_s?))),
        )?;
        let checks = &status.checks;
        families.gauge(
            "oldest_check_age_seconds",
            "Seconds since a check completed of the target that was not checked for longest.",
            checks.oldest_age_s.map(|age| (BARE, age)),
        )?;
        families.gauge(
            "stale_targets",
            "Targets whose checks are due and do not complete.",
            [(BARE, checks.stale as u64)],
        )?;
        families.counter(
            "check_task_restarts",
            "Check tasks that died or hung and were started anew.",
            [(BARE, checks.restarts)],
        )?;
        families.gauge(
            "overrides",
            "Overrides that are set.",
            [(BARE, status.overrides.len() as u64)],
        )?;
        families.counter("events", "Events told since start.", [(BARE, status.events)])
    }
}

/// Every member with its labels.
fn members(status: &Status) -> impl Iterator<Item = ([(&'static str, String); 3], &MemberStatus)> {
    let labelled = |service: &ServiceStatus, member: &MemberStatus| {
        [
            ("service", service.name.clone()),
            ("address", member.address.to_string()),
            ("site", member.site.clone()),
        ]
    };
    status.services.iter().flat_map(move |service| {
        service
            .members
            .iter()
            .map(move |member| (labelled(service, member), member))
    })
}
