//! A report and its answer: JSON over `POST /v1/report`. Written by `windrose agent` and by other systems, read by the
//! receiver.
//!
//! A report has exactly the fields of its version: an unknown one is refused, since a misspelt field would be missing
//! data for ever. What is optional and absent is missing data.

use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use std::net::IpAddr;

/// The version of reports that this program writes and reads.
pub const VERSION: u32 = 1;
/// Path that reports are posted to.
pub const PATH: &str = "/v1/report";
/// Largest report, bytes: thousands of members and RTTs.
pub const BYTES_MAX: usize = 1 << 20;
/// Members, RTTs and silent prefixes in a report at most, each.
pub const ITEMS_MAX: usize = 4096;
/// Longest round-trip time, microseconds: a minute.
const RTT_US_MAX: u64 = 60_000_000;

/// What a site says of itself.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Report {
    /// [`VERSION`].
    pub version: u32,
    /// The site's name in the appliance's configuration.
    pub site: String,
    /// Rises from report to report, also over a restart of the sender: begin with the Unix time.
    pub sequence: u64,
    /// The sender's clock, Unix milliseconds. For people; ages go by the appliance's own clock.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sent_at_ms: Option<u64>,
    /// What is known of its members.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub members: Vec<MemberReport>,
    /// The site as a whole.
    #[serde(default)]
    pub totals: Totals,
    /// Round-trip times measured since the last report.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rtts: Vec<Rtt>,
    /// Prefixes that were tried since the last report and gave no reply.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub silent_prefixes: Vec<IpNet>,
}

/// What a site says of one member.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MemberReport {
    /// The member.
    pub address: IpAddr,
    /// Whether its checks at the site say that it is up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub up: Option<bool>,
    /// Share of requests or checks that failed lately (5xx, 429, timeouts), 0 to 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error_rate: Option<f64>,
    /// How long an answer takes, microseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency_us: Option<u64>,
    /// Sessions open now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sessions: Option<u64>,
}

/// What a site says of itself as a whole.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Totals {
    /// Sessions open now. Absent: the sum over the members, if they have any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sessions: Option<u64>,
    /// Bandwidth in use, bits per second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bandwidth_bps: Option<u64>,
    /// New connections per second; the appliance averages the last five.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub connections_per_second: Option<u64>,
    /// Since these were read, milliseconds.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub age_ms: u64,
}

/// How a round-trip time was measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Method {
    /// ICMP echo.
    Icmp,
    /// A TCP handshake, or the reset that refused it.
    Tcp,
    /// Otherwise.
    Other,
}

/// A round-trip time to a prefix.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rtt {
    /// The prefix, as it was asked for.
    pub prefix: IpNet,
    /// The median, microseconds.
    pub rtt_us: u64,
    /// How it was measured.
    pub method: Method,
    /// Samples that the median is of.
    pub samples: u32,
    /// Since it was measured, milliseconds.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub age_ms: u64,
}

/// The answer to a report that was taken.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Answer {
    /// Report again after so long, milliseconds.
    pub interval_ms: u64,
    /// Without a report for so long the site is silent, milliseconds.
    pub silent_after_ms: u64,
    /// Prefixes to measure now, the most urgent first.
    pub measure: Vec<Wanted>,
}

/// A prefix that an RTT is wanted of.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Wanted {
    /// The prefix.
    pub prefix: IpNet,
    /// An address in it that was heard of; absent: any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<IpAddr>,
}

fn is_zero(value: &u64) -> bool {
    *value == 0
}

impl Report {
    /// Whether its values can be, whatever JSON allows.
    ///
    /// # Errors
    /// What cannot be, in one line.
    pub fn check(&self) -> Result<(), String> {
        if self.version != VERSION {
            return Err(format!(
                "version {} is not known here, only {VERSION}",
                self.version
            ));
        }
        let counts = [
            ("members", self.members.len()),
            ("rtts", self.rtts.len()),
            ("silent_prefixes", self.silent_prefixes.len()),
        ];
        if let Some((name, count)) = counts.into_iter().find(|&(_, count)| count > ITEMS_MAX) {
            return Err(format!("{count} {name}, more than {ITEMS_MAX}"));
        }
        for member in &self.members {
            // Written so that NaN is refused as well.
            if member.error_rate.is_some_and(|rate| !(0.0..=1.0).contains(&rate)) {
                return Err(format!("error_rate of {} is not from 0 to 1", member.address));
            }
        }
        for rtt in &self.rtts {
            if rtt.rtt_us > RTT_US_MAX || rtt.samples == 0 {
                return Err(format!("rtt of {}: over a minute, or of no sample", rtt.prefix));
            }
        }
        let prefixes = self
            .rtts
            .iter()
            .map(|rtt| &rtt.prefix)
            .chain(&self.silent_prefixes);
        match prefixes.into_iter().find(|prefix| **prefix != prefix.trunc()) {
            Some(prefix) => Err(format!("{prefix} has bits set beyond its length")),
            None => Ok(()),
        }
    }

    /// Sessions of the site: as it says, or the sum over its members.
    pub fn sessions(&self) -> Option<u64> {
        let of_members = self.members.iter().filter_map(|member| member.sessions);
        let sum = of_members.reduce(u64::saturating_add);
        self.totals.sessions.or(sum)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Report, String> {
        let report: Report = serde_json::from_str(text).map_err(|e| e.to_string())?;
        report.check()?;
        Ok(report)
    }

    #[test]
    fn a_report_by_hand_is_read() {
        let report = read(
            r#"{"version": 1, "site": "seoul-kt", "sequence": 7,
                "members": [{"address": "203.0.113.1", "sessions": 300000}, {"address": "203.0.113.2", "sessions": 100000}],
                "totals": {"bandwidth_bps": 900000000},
                "rtts": [{"prefix": "198.51.100.0/24", "rtt_us": 30000, "method": "icmp", "samples": 3}]}"#,
        );
        let report = report.expect("a report");
        // Netmanias, part 2: a site's session count is the sum over its servers.
        assert_eq!(report.sessions(), Some(400_000));
        assert_eq!(report.totals.bandwidth_bps, Some(900_000_000));
        assert_eq!(report.rtts[0].age_ms, 0);
    }

    #[test]
    fn what_cannot_be_is_refused_and_named() {
        let cases = [
            (r#"{"version":2,"site":"s","sequence":1}"#, "version 2"),
            (r#"{"version":1,"site":"s"}"#, "sequence"),
            (
                r#"{"version":1,"site":"s","sequence":1,"totals":{"bandwith_bps":1}}"#,
                "bandwith_bps",
            ),
            (
                r#"{"version":1,"site":"s","sequence":1,"totals":{"sessions":-1}}"#,
                "-1",
            ),
            (
                r#"{"version":1,"site":"s","sequence":1,"members":[{"address":"192.0.2.1","error_rate":1.5}]}"#,
                "192.0.2.1",
            ),
            (
                r#"{"version":1,"site":"s","sequence":1,"rtts":[{"prefix":"192.0.2.0/24","rtt_us":1,"method":"icmp","samples":0}]}"#,
                "192.0.2.0/24",
            ),
            (
                r#"{"version":1,"site":"s","sequence":1,"silent_prefixes":["192.0.2.1/24"]}"#,
                "192.0.2.1/24",
            ),
        ];
        for (text, part) in cases {
            let error = read(text).expect_err(text);
            assert!(error.contains(part), "{error:?} lacks {part:?}");
        }
    }
}
