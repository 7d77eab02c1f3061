//! Numbers that the kernel keeps: IPVS, connection tracking, TCP, network interfaces. All from /proc of the agent's own
//! network namespace.

use super::super::config::{From, Quantity};
use super::{Growth, MemberNumbers, Numbers, whole};
use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr};
use std::time::Instant;

const IPVS: &str = "/proc/net/ip_vs";
const IPVS_STATS: &str = "/proc/net/ip_vs_stats";
const CONNTRACK: &str = "/proc/sys/net/netfilter/nf_conntrack_count";
const SNMP: &str = "/proc/net/snmp";
const DEVICES: &str = "/proc/net/dev";

/// What one of the kernel's sources says.
pub(super) fn read(
    from: &From,
    members: &[IpAddr],
    growth: &mut HashMap<Quantity, Growth>,
) -> Result<Numbers, String> {
    let now = Instant::now();
    let mut grown = |quantity, value: u64| growth.entry(quantity).or_default().take(now, value as f64);
    let mut numbers = Numbers::default();
    match from {
        From::Ipvs => {
            numbers = ipvs(&file(IPVS)?, members)?;
            let stats = file(IPVS_STATS)?;
            let (connections, bytes) = ipvs_stats(&stats).ok_or_else(|| unknown(IPVS_STATS))?;
            numbers.connections = grown(Quantity::Connections, connections).and_then(whole);
            numbers.bandwidth = grown(Quantity::Bandwidth, bytes).and_then(|bytes| whole(bytes * 8.0));
        }
        From::Conntrack => {
            let count = file(CONNTRACK)?;
            numbers.sessions = Some(count.trim().parse().map_err(|_| unknown(CONNTRACK))?);
        }
        From::Tcp => {
            let (open, accepted) = snmp(&file(SNMP)?).ok_or_else(|| unknown(SNMP))?;
            numbers.sessions = Some(open);
            numbers.connections = grown(Quantity::Connections, accepted).and_then(whole);
        }
        From::Interface { name, out } => {
            let devices = file(DEVICES)?;
            let bytes =
                device(&devices, name, *out).ok_or_else(|| format!("there is no interface {name}"))?;
            numbers.bandwidth = grown(Quantity::Bandwidth, bytes).and_then(|bytes| whole(bytes * 8.0));
        }
        From::Command(_) | From::Prometheus { .. } => {}
    }
    Ok(numbers)
}

fn file(path: &str) -> Result<String, String> {
    std::fs::read_to_string(path).map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => format!("there is no {path}: the kernel's module is not loaded"),
        _ => format!("{path}: {error}"),
    })
}

fn unknown(path: &str) -> String {
    format!("{path} is not as this program knows it")
}

/// Active connections of /proc/net/ip_vs: all, and those of members, which are virtual services or real servers there.
fn ipvs(text: &str, members: &[IpAddr]) -> Result<Numbers, String> {
    let mut numbers = Numbers {
        sessions: Some(0),
        ..Numbers::default()
    };
    let mut service = None;
    let mut count = |address: Option<IpAddr>, active: u64| {
        let Some(address) = address.filter(|address| members.contains(address)) else {
            return;
        };
        let member: &mut MemberNumbers = numbers.members.entry(address).or_default();
        *member.sessions.get_or_insert(0) += active;
    };
    let mut total = 0_u64;
    // Three lines of headings.
    for line in text.lines().skip(3) {
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        match words.as_slice() {
            ["->", server, _, _, active, ..] => {
                let active: u64 = active.parse().map_err(|_| unknown(IPVS))?;
                total += active;
                count(service, active);
                count(endpoint(server).filter(|server| Some(*server) != service), active);
            }
            ["TCP" | "UDP" | "SCTP", address, ..] => service = endpoint(address),
            // By firewall mark: without an address.
            _ => service = None,
        }
    }
    numbers.sessions = Some(total);
    Ok(numbers)
}

/// The address of `C0A80001:0050` or `[2001:0db8:...]:0050`.
fn endpoint(text: &str) -> Option<IpAddr> {
    if let Some(rest) = text.strip_prefix('[') {
        return rest.split(']').next()?.parse().ok();
    }
    let (address, _) = text.split_once(':')?;
    let bits = u32::from_str_radix(address, 16).ok()?;
    Some(Ipv4Addr::from_bits(bits).into())
}

/// Connections and bytes (both ways) of /proc/net/ip_vs_stats, since the module was loaded.
fn ipvs_stats(text: &str) -> Option<(u64, u64)> {
    let line = text.lines().nth(2)?;
    let values: Option<Vec<u64>> = line
        .split_ascii_whitespace()
        .map(|word| u64::from_str_radix(word, 16).ok())
        .collect();
    match values?.as_slice() {
        [connections, _, _, incoming, outgoing] => Some((*connections, incoming.checked_add(*outgoing)?)),
        _ => None,
    }
}

/// TCP connections established and accepted so far (`CurrEstab`, `PassiveOpens`), IPv4 and IPv6.
fn snmp(text: &str) -> Option<(u64, u64)> {
    let mut lines = text.lines().filter_map(|line| line.strip_prefix("Tcp:"));
    let (names, values) = (lines.next()?, lines.next()?);
    let of = |wanted: &str| {
        let at = names.split_ascii_whitespace().position(|name| name == wanted)?;
        values.split_ascii_whitespace().nth(at)?.parse().ok()
    };
    Some((of("CurrEstab")?, of("PassiveOpens")?))
}

/// Bytes that an interface has sent, or received.
fn device(text: &str, name: &str, out: bool) -> Option<u64> {
    let line = text
        .lines()
        .find_map(|line| line.trim_start().strip_prefix(name)?.strip_prefix(':'))?;
    line.split_ascii_whitespace()
        .nth(if out { 8 } else { 0 })?
        .parse()
        .ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    // The kernel's own forms: net/netfilter/ipvs/ip_vs_ctl.c, ip_vs_info_seq_show and ip_vs_stats_show.
    const SERVICES: &str = "\
IP Virtual Server version 1.2.1 (size=4096)
Prot LocalAddress:Port Scheduler Flags
  -> RemoteAddress:Port Forward Weight ActiveConn InActConn
TCP  CB007101:0050 wlc  
  -> 0A000002:0050      Route   1      300000     17        
  -> 0A000003:0050      Route   1      100000     20        
TCP  [2001:0db8:0000:0000:0000:0000:0000:0001]:0050 wlc  
  -> [2001:0db8:0000:0000:0000:0000:0000:000a]:0050      Route   1      5          0         
FWM  00000007 wlc  
  -> CB007102:0000      Masq    1      9          0         
";
    const STATS: &str = "   Total Incoming Outgoing         Incoming         Outgoing
   Conns  Packets  Packets            Bytes            Bytes
      2A       1F        0              100               10 

 Conns/s   Pkts/s   Pkts/s          Bytes/s          Bytes/s
       0        0        0                0                0 
";

    #[test]
    fn ipvs_connections_are_added_up_by_member() {
        let of = |text: &str| text.parse::<IpAddr>().expect("an address");
        let members = ["203.0.113.1", "203.0.113.2", "2001:db8::1", "203.0.113.3"].map(of);
        let numbers = ipvs(SERVICES, &members).expect("read");
        assert_eq!(numbers.sessions, Some(400_014));
        let sessions = |text: &str| numbers.members.get(&of(text)).and_then(|member| member.sessions);
        assert_eq!(sessions("203.0.113.1"), Some(400_000));
        assert_eq!(sessions("2001:db8::1"), Some(5));
        assert_eq!(sessions("203.0.113.2"), Some(9), "a real server that is a member");
        assert_eq!(sessions("203.0.113.3"), None);
        assert_eq!(ipvs_stats(STATS), Some((42, 272)));
        assert_eq!(ipvs_stats("x\ny\nz z\n"), None);
    }

    #[test]
    fn tcp_and_interfaces_of_this_host_are_read() {
        let text = "Ip: Forwarding\nIp: 1\n\
            Tcp: RtoAlgorithm RtoMin RtoMax MaxConn ActiveOpens PassiveOpens AttemptFails EstabResets CurrEstab\n\
            Tcp: 1 200 120000 -1 11 22 3 4 55\n";
        assert_eq!(snmp(text), Some((55, 22)));
        let text = "Inter-|   Receive\n face |bytes\n    lo: 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16\n  eth0: 100 2 0 0 0 0 0 0 900 8 0 0 0 0 0 0\n";
        assert_eq!(
            (device(text, "eth0", true), device(text, "eth0", false)),
            (Some(900), Some(100))
        );
        assert_eq!(
            (device(text, "eth", true), device(text, "lo", true)),
            (None, Some(9))
        );
        let mut growth = HashMap::new();
        read(&From::Tcp, &[], &mut growth).expect("this kernel has it");
        let loopback = From::Interface {
            name: "lo".into(),
            out: true,
        };
        assert_eq!(
            read(&loopback, &[], &mut growth).expect("read").bandwidth,
            None,
            "the first time"
        );
        std::thread::sleep(std::time::Duration::from_millis(2));
        assert!(
            read(&loopback, &[], &mut growth)
                .expect("read")
                .bandwidth
                .is_some()
        );
        let missing = From::Interface {
            name: "wr-none".into(),
            out: true,
        };
        assert!(
            read(&missing, &[], &mut growth)
                .expect_err("missing")
                .contains("wr-none")
        );
    }
}
