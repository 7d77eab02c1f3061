//! What a run counted, and how it is shown: a table for people, JSON with stable names for programs.

use hdrhistogram::Histogram;
use serde::{Serialize, Serializer};
use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;

/// Response codes counted one by one: 0 to 23 (RFC 6895 and BADCOOKIE); the last cell is for others.
const RCODES: usize = 25;
/// Different addresses counted one by one; further ones are "others".
pub const ADDRESSES_MAX: usize = 4096;
/// Addresses that the text report lists.
const ADDRESSES_SHOWN: usize = 32;
/// Latencies are kept in tenths of a microsecond, to three significant digits.
const NS_PER_UNIT: u64 = 100;

/// How often each address was given; bounded, without growth.
#[derive(Debug)]
pub struct AddressCounts {
    /// Open addressing, twice as large as may be used.
    cells: Box<[Option<(IpAddr, u64)>]>,
    used: usize,
    others: u64,
    seed: u64,
}

impl AddressCounts {
    fn new(seed: u64) -> Self {
        Self {
            cells: vec![None; ADDRESSES_MAX * 2].into_boxed_slice(),
            used: 0,
            others: 0,
            seed,
        }
    }

    /// Counts one.
    #[inline]
    pub fn add(&mut self, address: IpAddr) {
        let mask = self.cells.len() - 1;
        let mut at = hash(address, self.seed) as usize & mask;
        // At least half of the cells are free, so that the search ends.
        while let Some(cell) = self.cells.get_mut(at) {
            match cell {
                Some((known, count)) if *known == address => {
                    *count += 1;
                    return;
                }
                Some(_) => at = (at + 1) & mask,
                None if self.used < ADDRESSES_MAX => {
                    self.used += 1;
                    *cell = Some((address, 1));
                    return;
                }
                None => {
                    self.others += 1;
                    return;
                }
            }
        }
    }

    /// Address and count, most frequent first.
    fn sorted(&self) -> Vec<(String, u64)> {
        let mut all: Vec<_> = self.cells.iter().flatten().copied().collect();
        all.sort_by_key(|&(address, count)| (std::cmp::Reverse(count), address));
        all.into_iter()
            .map(|(address, count)| (address.to_string(), count))
            .collect()
    }
}

fn hash(address: IpAddr, seed: u64) -> u64 {
    let (high, low) = match address {
        IpAddr::V4(a) => (4, u64::from(a.to_bits())),
        IpAddr::V6(a) => ((a.to_bits() >> 64) as u64, a.to_bits() as u64),
    };
    let mixed = u128::from(high ^ seed ^ 0x9e37_79b9_7f4a_7c15)
        * u128::from(low ^ seed.rotate_left(32) ^ 0xd1b5_4a32_d192_ed03);
    (mixed >> 64) as u64 ^ mixed as u64
}

/// The engine's own counts. Plain words, one writer. The laws: sent = answered + lost, once a run has
/// ended; replies received = answered + wrong + duplicates + late.
#[derive(Debug)]
pub struct Tally {
    /// Queries that the port took.
    pub sent: u64,
    /// Queries that got a right reply in time.
    pub answered: u64,
    /// Queries that got none.
    pub lost: u64,
    /// Of the lost: given up before their time, as the in-flight table was full.
    pub evicted: u64,
    /// Replies whose checksum, ID, address or question is wrong, or that are malformed.
    pub wrong: u64,
    /// Of the wrong: those whose IPv4 or UDP checksum is wrong.
    pub bad_checksum: u64,
    /// Replies to a query that was answered already.
    pub duplicates: u64,
    /// Replies to a query that was given up.
    pub late: u64,
    /// Of the answered: those whose addresses the expectations do not allow.
    pub unexpected: u64,
    /// Of the answered: those with TC set.
    pub truncated: u64,
    /// Queries that the port did not take at once; each try counts. They are tried again.
    pub tx_refused: u64,
    /// Turns on which no buffer was free for a query that was due.
    pub no_buffer: u64,
    /// ICMP errors received.
    pub icmp_errors: u64,
    /// Bytes of DNS messages sent, and of right replies.
    pub query_bytes: u64,
    /// See `query_bytes`.
    pub reply_bytes: u64,
    /// Queries scheduled that were not sent when the run was over.
    pub unsent: u64,
    /// Nanoseconds from the start to the end of sending.
    pub elapsed: u64,
    rcodes: [u64; RCODES],
    addresses: AddressCounts,
    latency: Histogram<u64>,
}

impl Tally {
    /// Takes all memory that counting will need. `timeout` in nanoseconds is the longest latency.
    pub fn new(timeout: u64, seed: u64) -> Self {
        let highest = (timeout / NS_PER_UNIT).max(2) + 1;
        let latency = Histogram::new_with_bounds(1, highest, 3).unwrap_or_else(|_| {
            // Three digits and a highest value of at least twice the lowest are always valid.
            unreachable!("histogram bounds 1..{highest}")
        });
        Self {
            sent: 0,
            answered: 0,
            lost: 0,
            evicted: 0,
            wrong: 0,
            bad_checksum: 0,
            duplicates: 0,
            late: 0,
            unexpected: 0,
            truncated: 0,
            tx_refused: 0,
            no_buffer: 0,
            icmp_errors: 0,
            query_bytes: 0,
            reply_bytes: 0,
            unsent: 0,
            elapsed: 0,
            rcodes: [0; RCODES],
            addresses: AddressCounts::new(seed),
            latency,
        }
    }

    /// Counts a right reply: its code, addresses and latency in nanoseconds.
    #[inline]
    pub fn answer(&mut self, rcode: u16, addresses: &[IpAddr], latency: u64) {
        self.answered += 1;
        if let Some(cell) = self.rcodes.get_mut(usize::from(rcode).min(RCODES - 1)) {
            *cell += 1;
        }
        for &address in addresses {
            self.addresses.add(address);
        }
        self.latency.saturating_record(latency / NS_PER_UNIT);
    }

    /// The report of a finished run.
    pub fn report(&self) -> Report {
        let seconds = self.elapsed as f64 / 1e9;
        let per_second = |count: u64| {
            if seconds > 0.0 {
                tenths(count as f64 / seconds)
            } else {
                0.0
            }
        };
        let quantile = |q: f64| self.latency.value_at_quantile(q) as f64 / 10.0;
        let named = |(code, &count): (usize, &u64)| (rcode_name(code), count);
        Report {
            sent: self.sent,
            answered: self.answered,
            lost: self.lost,
            wrong: self.wrong,
            duplicates: self.duplicates,
            late: self.late,
            unexpected: self.unexpected,
            rcodes: self
                .rcodes
                .iter()
                .enumerate()
                .filter(|c| *c.1 > 0)
                .map(named)
                .collect(),
            truncated: self.truncated,
            addresses: self.addresses.sorted(),
            addresses_others: self.addresses.others,
            latency_us: (self.answered > 0).then(|| LatencyUs {
                min: self.latency.min() as f64 / 10.0,
                mean: tenths(self.latency.mean() / 10.0),
                p50: quantile(0.50),
                p90: quantile(0.90),
                p99: quantile(0.99),
                p99_9: quantile(0.999),
                max: self.latency.max() as f64 / 10.0,
            }),
            elapsed_s: (seconds * 1e6).round() / 1e6,
            rate_sent: per_second(self.sent),
            rate_answered: per_second(self.answered),
            tx_refused: self.tx_refused,
            query_bytes: self.query_bytes,
            reply_bytes: self.reply_bytes,
            unsent: self.unsent,
            evicted: self.evicted,
            bad_checksum: self.bad_checksum,
            no_buffer: self.no_buffer,
            icmp_errors: self.icmp_errors,
        }
    }
}

fn tenths(value: f64) -> f64 {
    (value * 10.0).round() / 10.0
}

fn rcode_name(code: usize) -> String {
    if code == RCODES - 1 {
        return "OTHER".into();
    }
    domain::base::iana::OptRcode::masked_from_int(code as u16).to_string()
}

/// A finished run. The names are stable: programs read them.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// Queries that the port took. Always `answered + lost`.
    pub sent: u64,
    /// Queries that got a right reply within the timeout.
    pub answered: u64,
    /// Queries that got none.
    pub lost: u64,
    /// Replies whose checksum, ID, address or question is wrong, or that are malformed. Their query goes on waiting.
    pub wrong: u64,
    /// Replies to a query that was answered already.
    pub duplicates: u64,
    /// Replies to a query that was given up before.
    pub late: u64,
    /// Answered queries whose addresses the expectations do not allow.
    pub unexpected: u64,
    /// Answered queries by response code, extended codes (EDNS) among them.
    pub rcodes: BTreeMap<String, u64>,
    /// Answered queries with TC set.
    pub truncated: u64,
    /// How often each address was in an answer section, most frequent first.
    #[serde(serialize_with = "as_map")]
    pub addresses: Vec<(String, u64)>,
    /// Addresses beyond the 4,096 that are counted one by one.
    pub addresses_others: u64,
    /// From when a query was due to when its reply was seen, microseconds. `null` without answers.
    pub latency_us: Option<LatencyUs>,
    /// Seconds of sending.
    pub elapsed_s: f64,
    /// Queries sent per second of sending.
    pub rate_sent: f64,
    /// Queries answered per second of sending.
    pub rate_answered: f64,
    /// Times that the port did not take a query at once. It was tried again.
    pub tx_refused: u64,
    /// Bytes of DNS messages sent.
    pub query_bytes: u64,
    /// Bytes of DNS messages in right replies.
    pub reply_bytes: u64,
    /// Queries that the schedule held and the port did not take in time.
    pub unsent: u64,
    /// Lost queries that were given up before their timeout, as too many were in flight.
    pub evicted: u64,
    /// Wrong replies whose IPv4 or UDP checksum is wrong.
    pub bad_checksum: u64,
    /// Turns on which the port had no free buffer for a query that was due.
    pub no_buffer: u64,
    /// ICMP errors received.
    pub icmp_errors: u64,
}

/// Latencies in microseconds.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LatencyUs {
    /// The smallest.
    pub min: f64,
    /// The arithmetic mean.
    pub mean: f64,
    /// Median.
    pub p50: f64,
    /// 90th percentile.
    pub p90: f64,
    /// 99th percentile.
    pub p99: f64,
    /// 99.9th percentile.
    #[serde(rename = "p99.9")]
    pub p99_9: f64,
    /// The largest.
    pub max: f64,
}

fn as_map<S: Serializer>(pairs: &[(String, u64)], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(pairs.iter().map(|(k, v)| (k, v)))
}

impl Report {
    /// Percent of the queries sent that were lost, or answered wrongly or unexpectedly.
    pub fn loss_percent(&self) -> f64 {
        // A query with a wrong reply and no right one is already among the lost.
        let bad = (self.lost.max(self.wrong) + self.unexpected).min(self.sent.max(1));
        if self.sent == 0 {
            100.0
        } else {
            100.0 * bad as f64 / self.sent as f64
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let share = |n: u64| {
            if self.sent > 0 {
                100.0 * n as f64 / self.sent as f64
            } else {
                0.0
            }
        };
        writeln!(
            f,
            "sent         {:>12}   {:.0} q/s over {:.3} s",
            self.sent, self.rate_sent, self.elapsed_s
        )?;
        writeln!(
            f,
            "answered     {:>12}   {:.3} %, {:.0} q/s",
            self.answered,
            share(self.answered),
            self.rate_answered
        )?;
        writeln!(f, "lost         {:>12}   {:.3} %", self.lost, share(self.lost))?;
        writeln!(f, "wrong        {:>12}", self.wrong)?;
        writeln!(f, "duplicates   {:>12}", self.duplicates)?;
        writeln!(f, "late         {:>12}", self.late)?;
        let rare = [
            (
                "unexpected",
                self.unexpected,
                "answers with addresses that are not allowed",
            ),
            ("truncated", self.truncated, "answers with TC"),
            ("unsent", self.unsent, "the port did not follow the rate"),
            (
                "tx refused",
                self.tx_refused,
                "tries that the port did not take at once",
            ),
            (
                "evicted",
                self.evicted,
                "given up early: too many in flight (shorter --timeout, lower rate)",
            ),
            ("no buffer", self.no_buffer, "turns without a free buffer"),
            (
                "ICMP errors",
                self.icmp_errors,
                "the server's host refuses: is it listening?",
            ),
            (
                "bad checksum",
                self.bad_checksum,
                "on a veth: ethtool -K IFACE tx off, at both ends",
            ),
        ];
        for (name, count, note) in rare.into_iter().filter(|r| r.1 > 0) {
            writeln!(f, "{name:<12} {count:>12}   {note}")?;
        }
        writeln!(
            f,
            "bytes        {:>12}   of queries; {} of replies",
            self.query_bytes, self.reply_bytes
        )?;
        if let Some(l) = &self.latency_us {
            writeln!(
                f,
                "latency us   min {:.1}  mean {:.1}  p50 {:.1}  p90 {:.1}  p99 {:.1}  p99.9 {:.1}  max {:.1}",
                l.min, l.mean, l.p50, l.p90, l.p99, l.p99_9, l.max
            )?;
        }
        for (code, count) in &self.rcodes {
            writeln!(f, "{code:<12} {count:>12}")?;
        }
        for (address, count) in self.addresses.iter().take(ADDRESSES_SHOWN) {
            writeln!(f, "  {address:<39} {count:>12}")?;
        }
        let hidden: u64 = self
            .addresses
            .iter()
            .skip(ADDRESSES_SHOWN)
            .map(|a| a.1)
            .sum::<u64>()
            + self.addresses_others;
        if hidden > 0 {
            writeln!(f, "  {:<39} {hidden:>12}", "others")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    #[test]
    fn addresses_beyond_the_bound_are_others() {
        let mut counts = AddressCounts::new(1);
        for n in 0..5_000u32 {
            counts.add(IpAddr::V4(Ipv4Addr::from(n)));
        }
        counts.add(IpAddr::V4(Ipv4Addr::from(7)));
        counts.add("::7".parse().unwrap());
        assert_eq!(counts.others, 5_000 - 4_096 + 1);
        let sorted = counts.sorted();
        assert_eq!((sorted.len(), sorted[0].clone()), (4_096, ("0.0.0.7".into(), 2)));
    }

    #[test]
    fn figures_of_known_samples() {
        let mut tally = Tally::new(2_000_000_000, 1);
        for n in 1..=1_000u64 {
            tally.answer(if n % 4 == 0 { 3 } else { 0 }, &[], n * 1_000);
        }
        tally.answer(16, &[], 0);
        tally.answer(4_000, &[], 0);
        tally.sent = 2_000;
        tally.elapsed = 500_000_000;
        let report = tally.report();
        assert_eq!((report.rate_sent, report.rate_answered), (4_000.0, 2_004.0));
        let codes: Vec<_> = report.rcodes.iter().map(|(k, v)| (k.as_str(), *v)).collect();
        assert_eq!(
            codes,
            [("BADVERS", 1), ("NOERROR", 750), ("NXDOMAIN", 250), ("OTHER", 1)]
        );
        let latency = report.latency_us.unwrap();
        // Ranks of 1,002 samples 0, 0, 1, 2 .. 1000 microseconds, within three digits.
        for (value, expected) in [
            (latency.p50, 499.0),
            (latency.p90, 900.0),
            (latency.p99, 990.0),
            (latency.max, 1_000.0),
        ] {
            assert!(
                (value - expected).abs() <= expected / 1_000.0 + 0.1,
                "{value} for {expected}"
            );
        }
    }

    #[test]
    fn json_names() {
        let mut tally = Tally::new(1_000_000_000, 1);
        tally.sent = 1;
        tally.answer(0, &["198.51.100.7".parse().unwrap()], 12_340);
        let json = serde_json::to_value(tally.report()).unwrap();
        for name in [
            "sent",
            "answered",
            "lost",
            "wrong",
            "duplicates",
            "late",
            "rcodes",
            "truncated",
            "addresses",
            "latency_us",
            "elapsed_s",
            "rate_sent",
            "rate_answered",
            "tx_refused",
            "query_bytes",
            "reply_bytes",
        ] {
            assert!(json.get(name).is_some(), "{name}");
        }
        assert_eq!(json["addresses"]["198.51.100.7"], 1);
        assert_eq!(json["latency_us"]["p99.9"], 12.3);
        assert_eq!(json["rcodes"]["NOERROR"], 1);
    }
}
