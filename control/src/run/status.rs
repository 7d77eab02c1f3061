//! What the appliance says of itself: the status for the admin API, and the totals at the end.

use super::live::Live;
use super::ports::mac_text;
use crate::admin::api::{
    Appliance, ClientsStatus, DatabaseStatus, Events, ExplainRequest, Explanation, IspStatus, MemberStatus,
    OverrideReport, OverrideRequest, PortStatus, ReloadFuture, ReportsStatus, ServiceStatus,
    SiteReportStatus, SiteStatus, Status, TcpStatus, WorkerStatus,
};
use crate::admin::latency::{LatencyCell, LatencyReport, LatencyStatus};
use crate::config::model::{Config, Isp, OnSilence, Role};
use crate::data::Table;
use crate::health::TargetKey;
use crate::overrides::Override;
use crate::policy::Index;
use crate::reports::store;
use crate::tcp::Tally;
use dataplane::counters::{Counter, Counters, Kind};
use dataplane::io::dpdk::DpdkQueues;
use dataplane::worker::Worker;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::time::{Instant, UNIX_EPOCH};

impl Appliance for Live {
    fn status(&self) -> Status {
        let current = self.current();
        let config = current.as_ref().map_or(&self.started_by, |c| &c.index.config);
        let services = self.services(config);
        let reported = self.reports.store.status(Instant::now());
        Status {
            appliance: config.appliance.name.clone(),
            version: env!("CARGO_PKG_VERSION").into(),
            uptime_s: self.started.elapsed().as_secs(),
            generation: current.as_ref().map_or(0, |c| c.snapshot.generation),
            config_hash: config.hash.clone(),
            config_loaded_at: current.as_ref().map_or(0, |c| c.loaded_at),
            workers: self.workers(),
            tcp: self.tcp.as_ref().map(|tcp| tcp_status(tcp.tally())),
            latency: self.latency_status(),
            ports: self.port_status(),
            sites: sites(config, &services, &reported),
            reports: self.reports_status(&reported),
            clients: current.as_ref().map(|c| clients(&c.index)).unwrap_or_default(),
            services,
            checks: self.checks(),
            overrides: self.overrides.list(),
            events: self.alerts.count(),
        }
    }

    fn explain(&self, request: &ExplainRequest) -> Result<Explanation, String> {
        let words = self.words();
        let current = self.current();
        let current = current
            .as_ref()
            .ok_or("nothing is published yet: try again in a moment")?;
        let facts = self.facts(&current.index.config);
        super::explain::explain(
            &current.snapshot,
            &current.index,
            &words,
            &facts,
            request,
            &|service, site, member| self.note(service, site, member),
        )
    }

    fn latency(&self) -> LatencyReport {
        let (window, sites) = match &*self.current() {
            Some(current) => {
                let config = &current.index.config;
                let names = config.sites.iter().map(|site| site.name.clone());
                (config.latency.window, names.collect())
            }
            None => (self.started_by.latency.window, Vec::new()),
        };
        let now = Instant::now();
        let figures = self.latency.store.figures(now);
        LatencyReport {
            window_s: window.as_secs_f64(),
            status: self.latency_status().unwrap_or_default(),
            sites,
            cells: figures.iter().map(|f| LatencyCell::new(f, now)).collect(),
        }
    }

    fn events(&self) -> Events {
        self.told()
    }

    fn overrides(&self) -> Vec<Override> {
        self.overrides.list()
    }

    fn set_override(&self, request: &OverrideRequest) -> Result<OverrideReport, String> {
        self.override_set(request)
    }

    fn clear_overrides(&self, glob: Option<&str>) -> Result<Vec<Override>, String> {
        self.override_clear(glob)
    }

    fn reload(&self) -> ReloadFuture<'_> {
        Box::pin(self.load_again())
    }

    fn worker_counters(&self) -> Vec<(usize, Counters)> {
        self.published.iter().map(|p| p.read()).enumerate().collect()
    }
}

impl Live {
    fn workers(&self) -> Vec<WorkerStatus> {
        let delivery = self.publisher.status();
        self.published
            .iter()
            .zip(&self.started_by.dataplane.cores)
            .zip(&delivery)
            .enumerate()
            .map(|(index, ((published, &core), delivery))| {
                let c = published.read();
                let (polls, useful) = (c.get(Counter::Polls), c.get(Counter::UsefulPolls));
                let ledger = &delivery.ledger;
                WorkerStatus {
                    index,
                    core,
                    received: c.get(Counter::Received),
                    replied: c.get(Counter::Replied),
                    transmitted: c.get(Counter::Transmitted),
                    dropped: c.sum(Kind::Drop),
                    dropped_by_reason: reasons(&c),
                    dns_byte_ratio: byte_ratio(&c),
                    busy_share: if polls == 0 {
                        0.0
                    } else {
                        useful as f64 / polls as f64
                    },
                    loop_gap_max_us: self.rate.duration(c.get(Counter::LoopGapTicksMax)).as_secs_f64() * 1e6,
                    stalled: delivery.stalled_since.is_some(),
                    generation: ledger.worker.generation,
                    published: ledger.control.published,
                    adopted: ledger.worker.adopted,
                    superseded: ledger.control.superseded,
                    retired: ledger.worker.retired,
                }
            })
            .collect()
    }

    /// `None` where no port measures.
    fn latency_status(&self) -> Option<LatencyStatus> {
        let measures = self
            .started_by
            .ports
            .iter()
            .any(|port| port.role != Role::Service);
        let lost = self
            .published
            .iter()
            .map(|p| p.read().get(Counter::LatencySamplesDropped));
        let file = self.latency.file.as_ref().map(|file| file.counts());
        measures.then(|| LatencyStatus::new(&self.latency.store.counts(), lost.sum(), file))
    }

    fn reports_status(&self, sites: &[store::SiteStatus]) -> Option<ReportsStatus> {
        let receiver = self.reports.receiver.as_ref()?;
        Some(ReportsStatus {
            listen: receiver.address.to_string(),
            fingerprint: receiver.fingerprint.clone(),
            requests: receiver.counters(),
            rtt_prefixes: self.reports.store.prefixes().len(),
            feed_down: !sites.is_empty() && sites.iter().all(|site| site.silent),
        })
    }

    fn port_status(&self) -> Vec<PortStatus> {
        self.ports
            .iter()
            .zip(&self.started_by.ports)
            .map(|(port, config)| {
                let info = port.info();
                let stats = port.stats().unwrap_or_default();
                let (link_up, mbps) = port.link();
                PortStatus {
                    name: config.name.clone(),
                    device: info.device.clone(),
                    driver: info.driver.clone(),
                    mac: mac_text(info.mac),
                    mtu: info.mtu,
                    link_up,
                    link_mbps: mbps.unwrap_or(0),
                    rx_packets: stats.ipackets,
                    tx_packets: stats.opackets,
                    rx_bytes: stats.ibytes,
                    tx_bytes: stats.obytes,
                    imissed: stats.imissed,
                    ierrors: stats.ierrors,
                    oerrors: stats.oerrors,
                    rx_nombuf: stats.rx_nombuf,
                }
            })
            .collect()
    }

    fn services(&self, config: &Config) -> Vec<ServiceStatus> {
        let member = |service: &crate::config::model::Service, m: &crate::config::model::Member| {
            let target = service.check.as_ref().and_then(|check| {
                self.prober.get(&TargetKey {
                    address: m.address,
                    check: check.clone(),
                })
            });
            let (site, address) = (config.sites[m.site].name.clone(), m.address.to_string());
            let over = self.overrides.of(&site, &address);
            MemberStatus::new(address, site, m.weight, target.as_ref()).overridden(over.as_ref())
        };
        config
            .services
            .iter()
            .map(|s| ServiceStatus {
                name: s.name.to_string(),
                members: s
                    .members
                    .iter()
                    .map(|m| member(s, m))
                    .chain(s.cnames.iter().map(|m| {
                        let site = config.sites[m.site].name.clone();
                        MemberStatus {
                            reason: "a name: counts as up".into(),
                            ..MemberStatus::new(format!("{}.", m.name), site, m.weight, None)
                        }
                    }))
                    .collect(),
            })
            .collect()
    }
}

/// Client data and classes of a compiled configuration.
fn clients(index: &Index) -> ClientsStatus {
    fn database<T>(kind: &str, table: &Table<T>) -> DatabaseStatus {
        DatabaseStatus {
            file: table.path.display().to_string(),
            kind: kind.into(),
            rows: table.rows,
            values: table.values.len(),
            modified_at: table
                .modified
                .duration_since(UNIX_EPOCH)
                .map_or(0, |t| t.as_secs()),
        }
    }
    let (config, sizes) = (&index.config, &index.sizes);
    let isp = |(isp, &[v4, v6]): (&Isp, &[usize; 2])| IspStatus {
        name: isp.name.clone(),
        asns: isp.asns.len(),
        prefixes: (v4, v6),
    };
    let asn = config.data.asn.iter().map(|t| database("asn", t));
    let country = config.data.country.iter().map(|t| database("country", t));
    ClientsStatus {
        classes: index.classes.len(),
        prefixes: (sizes.prefixes[0], sizes.prefixes[1]),
        measured: sizes.measured,
        location_grid: sizes.location_grid,
        isps: config.isps.iter().zip(&sizes.isps).map(isp).collect(),
        databases: asn.chain(country).collect(),
    }
}

fn tcp_status(tally: &Tally) -> TcpStatus {
    let answers = tally.answers();
    let replies = Counter::ALL.iter().filter(|c| c.kind() == Kind::Dns);
    TcpStatus {
        open: tally.open(),
        connections: tally.connections.read(),
        replies: replies.map(|&c| (c.name().to_owned(), answers.get(c))).collect(),
        ignored: answers.sum(Kind::Drop),
        query_bytes: answers.get(Counter::DnsQueryBytes),
        reply_bytes: answers.get(Counter::DnsReplyBytes),
        punted: tally.punted.read(),
        sent: tally.sent.read(),
    }
}

fn site_report(on_silence: OnSilence, site: &store::SiteStatus) -> SiteReportStatus {
    let last = site.last.as_ref().map(|(report, _)| report);
    let members = last.map_or(&[][..], |report| &report.members);
    let count = |up| members.iter().filter(|member| member.up == Some(up)).count();
    SiteReportStatus {
        silent: site.silent,
        on_silence: on_silence.name().into(),
        age_s: site.last.as_ref().map(|(_, age)| age.as_secs_f64()),
        from: site.from,
        sequence: last.map(|report| report.sequence),
        taken: site.taken,
        sessions: last.and_then(|report| report.sessions()),
        bandwidth_bps: last.and_then(|report| report.totals.bandwidth_bps),
        connections_per_second: site.connections_per_second,
        members: (count(true), count(false)),
        rtts: site.rtts,
    }
}

fn sites(config: &Config, services: &[ServiceStatus], reported: &[store::SiteStatus]) -> Vec<SiteStatus> {
    let members = |name: &str, up: bool| {
        services
            .iter()
            .flat_map(|s| &s.members)
            .filter(|m| m.site == name && (!up || m.given))
            .count()
    };
    config
        .sites
        .iter()
        .map(|site| SiteStatus {
            name: site.name.clone(),
            isp: site.isp.map(|i| config.isps[i].name.clone()),
            members: members(&site.name, false),
            members_up: members(&site.name, true),
            report: reported
                .iter()
                .find(|known| known.site == site.name)
                .map(|known| site_report(site.on_silence, known)),
        })
        .collect()
}

/// Bytes of DNS replies over bytes of the queries that got one; `None` before the first.
fn byte_ratio(counters: &Counters) -> Option<f64> {
    let (asked, given) = (
        counters.get(Counter::DnsQueryBytes),
        counters.get(Counter::DnsReplyBytes),
    );
    (asked > 0).then(|| given as f64 / asked as f64)
}

/// The drop reasons that occurred, by counter name.
fn reasons(counters: &Counters) -> BTreeMap<String, u64> {
    Counter::ALL
        .iter()
        .filter(|c| c.kind() == Kind::Drop && counters.get(**c) > 0)
        .map(|c| (c.name().to_string(), counters.get(*c)))
        .collect()
}

/// The totals of all workers, a line each, with the packet laws checked.
pub(super) fn totals(workers: &[Worker<DpdkQueues>]) -> String {
    let mut out = String::new();
    for (index, worker) in workers.iter().enumerate() {
        let c = worker.counters();
        let [received, replied, forwarded, punted, consumed] = [
            Counter::Received,
            Counter::Replied,
            Counter::Forwarded,
            Counter::Punted,
            Counter::Consumed,
        ]
        .map(|counter| c.get(counter));
        let drops: Vec<String> = reasons(c)
            .iter()
            .map(|(reason, n)| format!("{reason} {n}"))
            .collect();
        let drops = if drops.is_empty() {
            String::new()
        } else {
            format!(" ({})", drops.join(", "))
        };
        _ = writeln!(
            out,
            "worker {index}: received {received} = replied {replied} + forwarded {forwarded} + punted {punted} \
             + consumed {consumed} + dropped {}{drops}; transmitted {}, injected {}",
            c.sum(Kind::Drop),
            c.get(Counter::Transmitted),
            c.get(Counter::Injected),
        );
        if let Err(broken) = c.check_laws() {
            _ = writeln!(
                out,
                "worker {index}: packets unaccounted for, please report this: {broken}"
            );
        }
    }
    out
}
