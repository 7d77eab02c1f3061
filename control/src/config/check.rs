//! Reads `check = { ... }` of a service: what is tried, how often, and what is made of the results. Called by
//! `service`.

use super::model::{BrownoutRule, Check, CheckKind, DampeningRule, Grade};
use super::reader::{Table, Value};
use super::sections::{NAME_MAX, domain_name};
use domain::base::iana::{Rcode, Rtype};
use std::time::Duration;

/// Longest payload of a UDP check, and longest text that its answer must hold: what fits any path.
const PAYLOAD_MAX: usize = 1200;
const HOUR: Duration = Duration::from_secs(3600);

/// The kinds, as they are written, with the keys that are theirs alone and their port (0: it has none, `None`: it must
/// be given).
const KINDS: [Kind; 6] = [
    Kind::new("tcp", &[], None),
    Kind::new("http", &["path", "host", "expect"], Some(80)),
    Kind::new("https", &["path", "host", "expect", "verify"], Some(443)),
    Kind::new("icmp", &[], Some(0)),
    Kind::new("udp", &["payload", "expect"], None),
    Kind::new("dns", &["query", "type", "rcode", "address"], Some(53)),
];
/// Every key that not all kinds have.
const OWN_KEYS: [&str; 9] = [
    "path", "host", "expect", "verify", "payload", "query", "type", "rcode", "address",
];

#[derive(Clone, Copy)]
struct Kind {
    name: &'static str,
    keys: &'static [&'static str],
    port: Option<u16>,
}

impl Kind {
    const fn new(name: &'static str, keys: &'static [&'static str], port: Option<u16>) -> Self {
        Self { name, keys, port }
    }
}

/// `check = { kind = "http", ... }`.
pub(crate) fn check(table: &Table<'_>) -> Option<Check> {
    let choices = KINDS.map(|kind| (kind.name, kind));
    let kind = table.need("kind").and_then(|value| value.choice(&choices));
    let interval_limits = Duration::from_millis(50)..=HOUR;
    let interval = table
        .get("interval")
        .and_then(|value| value.duration(interval_limits, "from 50ms to 1h"));
    let interval = interval.unwrap_or(Duration::from_secs(1));
    let timeout_limits = Duration::from_millis(1)..=interval;
    let timeout = table
        .get("timeout")
        .and_then(|v| v.duration(timeout_limits, "from 1ms to the interval"));
    let rise = table
        .get("rise")
        .and_then(|value| value.integer(1..=100))
        .unwrap_or(2);
    let fall = table
        .get("fall")
        .and_then(|value| value.integer(1..=100))
        .unwrap_or(3);
    let port_value = table.get("port");
    let port = port_value.as_ref().and_then(|value| value.integer(1..=65535));
    // IFNAMSIZ less its NUL; a namespace is a file name.
    let interface = table
        .get("interface")
        .and_then(|value| value.word(15))
        .map(str::to_owned);
    let netns = table.get("netns").and_then(|value| {
        let name = value.word(NAME_MAX)?;
        if name.contains('/') || name.starts_with('.') {
            return value.wrong("`netns` is a name, as in `ip netns list`, not a path");
        }
        Some(name.to_owned())
    });
    let grade = Grade {
        brownout: table
            .get("brownout")
            .and_then(|value| value.table("brownout = { ... }"))
            .and_then(|table| table.read(|table| brownout(table, timeout.unwrap_or(interval)))),
        slow_start: table
            .get("slow_start")
            .and_then(|value| value.duration(Duration::ZERO..=HOUR, "from 0s to 1h"))
            .unwrap_or_default(),
        dampening: table
            .get("dampening")
            .and_then(|value| value.table("dampening = { ... }"))
            .and_then(|table| table.read(dampening)),
    };
    for key in OWN_KEYS {
        let value = table.get(key);
        if let (Some(value), Some(kind)) = (value, kind)
            && !kind.keys.contains(&key)
        {
            let others = KINDS.iter().filter(|other| other.keys.contains(&key));
            let others: Vec<String> = others.map(|other| format!("\"{}\"", other.name)).collect();
            let only = others.join(" or ");
            let name = kind.name;
            value.wrong::<()>(format!(
                "`{key}` has no meaning for kind = \"{name}\", only for {only}"
            ));
        }
    }
    let kind = kind?;
    let port = match (kind.port, port_value) {
        (Some(0), Some(value)) => {
            value.wrong::<()>("`port` has no meaning for kind = \"icmp\"");
            0
        }
        (None, None) => {
            table.need("port");
            0
        }
        (default, _) => port.or(default).unwrap_or(0),
    };
    Some(Check {
        kind: kind_keys(table, kind.name)?,
        port,
        interval,
        timeout: timeout.unwrap_or(interval.min(Duration::from_secs(1))),
        rise,
        fall,
        interface,
        netns,
        grade,
    })
}

/// The keys of one kind.
fn kind_keys(table: &Table<'_>, kind: &str) -> Option<CheckKind> {
    Some(match kind {
        "tcp" => CheckKind::Tcp,
        "icmp" => CheckKind::Icmp,
        "udp" => udp_keys(table)?,
        "dns" => dns_keys(table)?,
        _ => http_keys(table, kind == "https"),
    })
}

fn http_keys(table: &Table<'_>, tls: bool) -> CheckKind {
    let path = table.get("path").and_then(|value| {
        let text = value.word(1024)?;
        if !text.starts_with('/') {
            return value.wrong(format!("`path` must begin with \"/\", not `{text}`"));
        }
        Some(text.to_owned())
    });
    let verify = if tls { table.get("verify") } else { None };
    let host = table.get("host").and_then(|value| value.word(253));
    CheckKind::Http {
        tls,
        verify: verify.and_then(|value| value.boolean()).unwrap_or(true),
        path: path.unwrap_or_else(|| "/".to_owned()),
        host: host.map(str::to_owned),
        expect: table
            .get("expect")
            .and_then(|value| status_range(&value))
            .unwrap_or((200, 399)),
    }
}

fn udp_keys(table: &Table<'_>) -> Option<CheckKind> {
    let bytes = |value: Value<'_>| {
        let text = value.string()?;
        match text.len() {
            1..=PAYLOAD_MAX => Some(text.as_bytes().to_vec()),
            len => value.wrong(format!("must be from 1 to {PAYLOAD_MAX} bytes, not {len}")),
        }
    };
    let payload = table.need("payload").and_then(bytes);
    let expect = table.get("expect").and_then(bytes);
    Some(CheckKind::Udp {
        payload: payload?,
        expect,
    })
}

fn dns_keys(table: &Table<'_>) -> Option<CheckKind> {
    let query = table.need("query").and_then(|value| domain_name(&value));
    let rtype = match table.get("type") {
        None => Some(Rtype::A),
        Some(value) => {
            let text = value.word(NAME_MAX)?;
            let parsed = text.to_ascii_uppercase().parse::<Rtype>().ok();
            parsed.or_else(|| value.wrong(format!("`{text}` is not a record type such as \"AAAA\"")))
        }
    };
    let rcodes = [
        ("NOERROR", Rcode::NOERROR),
        ("NXDOMAIN", Rcode::NXDOMAIN),
        ("REFUSED", Rcode::REFUSED),
        ("SERVFAIL", Rcode::SERVFAIL),
    ];
    let rcode = table.get("rcode").and_then(|value| value.choice(&rcodes));
    let address_value = table.get("address");
    let address = address_value.as_ref().and_then(|value| value.address());
    let wanted = match address {
        Some(address) if address.is_ipv4() => Some(Rtype::A),
        Some(_) => Some(Rtype::AAAA),
        None => None,
    };
    if let (Some(value), Some(wanted), Some(rtype)) = (address_value, wanted, rtype)
        && wanted != rtype
    {
        value.wrong::<()>(format!(
            "an address of this family is never in an answer to {rtype}"
        ));
    }
    Some(CheckKind::Dns {
        query: query?,
        rtype: rtype?.to_int(),
        rcode: rcode.unwrap_or(Rcode::NOERROR).to_int(),
        address,
    })
}

/// `brownout = { window = 20, shed_above = "10%", down_above = "50%", slower_than = "300ms" }`.
fn brownout(table: &Table<'_>, timeout: Duration) -> Option<BrownoutRule> {
    let window = table.get("window").and_then(|value| value.integer(5..=1000));
    let low_value = table.get("shed_above");
    let share = |value: &Value<'_>| u16::try_from(value.share(1000)?).ok();
    let low = low_value.as_ref().and_then(share).unwrap_or(100);
    let high_value = table.get("down_above");
    let high = high_value.as_ref().and_then(share).unwrap_or(500);
    let limits = Duration::from_millis(1)..=timeout;
    let slower_than = table
        .get("slower_than")
        .and_then(|value| value.duration(limits, "from 1ms to the timeout of the check"));
    if low >= high {
        let message = "`shed_above` must be below `down_above`: between them the share goes down";
        let span = low_value
            .or(high_value)
            .map_or(table.span.clone(), |value| value.span);
        table.report.error(span, message);
    }
    Some(BrownoutRule {
        window: window.unwrap_or(20),
        shed_above: low,
        down_above: high,
        slower_than,
    })
}

/// `dampening = { half_life = "15m", suppress = 2000, reuse = 750, max = "60m" }`.
fn dampening(table: &Table<'_>) -> Option<DampeningRule> {
    let half_life = table
        .get("half_life")
        .and_then(|value| value.duration(Duration::from_secs(1)..=HOUR * 24, "from 1s to 24h"))
        .unwrap_or(Duration::from_secs(15 * 60));
    let suppress_value = table.get("suppress");
    let suppress = suppress_value
        .as_ref()
        .and_then(|value| value.integer(1..=1_000_000));
    let suppress = suppress.unwrap_or(2000);
    let reuse_value = table.get("reuse");
    let reuse = reuse_value
        .as_ref()
        .and_then(|value| value.integer(1..=1_000_000));
    let reuse = reuse.unwrap_or(750);
    let max_value = table.get("max");
    let max = max_value
        .as_ref()
        .and_then(|value| value.duration(Duration::from_secs(1)..=HOUR * 24, "from 1s to 24h"));
    let max = max.unwrap_or(half_life * 4);
    let span = |value: Option<Value<'_>>| value.map_or(table.span.clone(), |value| value.span);
    // From the ceiling, which `max` makes, it must be able to reach `suppress` at all (RFC 2439 section 4.2).
    let ceiling = f64::from(reuse) * (max.as_secs_f64() / half_life.as_secs_f64()).exp2();
    if reuse >= suppress {
        let message = "`reuse` must be below `suppress`";
        table.report.error(span(reuse_value.or(suppress_value)), message);
    } else if ceiling < f64::from(suppress) {
        let message = format!(
            "no penalty can reach `suppress`: one above {ceiling:.0} would outlast `max` before it is down to `reuse`"
        );
        let help = Some("raise `max` or `reuse`, or lower `suppress` or `half_life`".into());
        table
            .report
            .error_help(span(max_value.or(suppress_value)), message, help);
    }
    Some(DampeningRule {
        half_life,
        suppress,
        reuse,
        max,
    })
}

/// `"200-399"`, `"204"`, `204` or `[200, 204]`: lowest and highest status.
fn status_range(value: &Value<'_>) -> Option<(u16, u16)> {
    let (low, high) = if value.is_string() {
        let text = value.string()?;
        let (low, high) = text.split_once('-').unwrap_or((text, text));
        match (low.trim().parse::<u16>(), high.trim().parse::<u16>()) {
            (Ok(low), Ok(high)) => (low, high),
            _ => {
                return value.wrong(format!(
                    "`{text}` is not a range of status codes such as \"200-399\""
                ));
            }
        }
    } else if value.is_integer() {
        let code = value.integer::<u16>(100..=599)?;
        (code, code)
    } else {
        let items = value.items()?;
        let [low, high] = items.as_slice() else {
            return value.wrong("`expect` must be [lowest, highest] status code");
        };
        (low.integer::<u16>(100..=599)?, high.integer::<u16>(100..=599)?)
    };
    if !(100..=599).contains(&low) || !(100..=599).contains(&high) || low > high {
        return value.wrong("`expect` must run from a lower to a higher status code, 100 to 599");
    }
    Some((low, high))
}
