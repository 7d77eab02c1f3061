//! Reads every section but `[[service]]`: one function a section, each key with its default and its
//! limits. Called by `config::load`.

use super::abuse;
use super::latency::{self, Role};
use super::model::{Admin, Appliance, Cookies, Dataplane, Dns, Idle, Isp, Port, Site, Tcp};
use super::reader::{At, Table, Value};
use super::selection;
use crate::config::model::Name;
use crate::data::countries;
use ipnet::IpNet;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Longest name of an appliance, port, ISP or site: it must fit a metric label and a table column.
pub(crate) const NAME_MAX: usize = 64;
/// What an mbuf and its share of the pool take, bytes: 2,560 of data room (128 headroom, a
/// window, what AF_XDP puts before it), 128 of `rte_mbuf`, 128 of object header and padding.
const MBUF_BYTES: u64 = 2816;
/// `memory` if not given.
const MEMORY_DEFAULT: u64 = 256 << 20;
/// `buffers` if not given.
const BUFFERS_DEFAULT: u32 = 8192;
/// Longest path of a Unix socket (`sun_path` less its NUL).
const SOCKET_PATH_MAX: usize = 107;
/// Shortest token: 16 characters of a random text cannot be guessed over a network.
pub(crate) const TOKEN_MIN: usize = 16;

/// `[[port]]` with its places.
pub(crate) struct PlacedPort {
    pub(crate) name: At<String>,
    pub(crate) device: At<String>,
    pub(crate) addresses: Vec<At<IpAddr>>,
    pub(crate) port: Port,
    /// Where the section begins.
    pub(crate) span: std::ops::Range<usize>,
}

/// `[[isp]]` with its places.
pub(crate) struct PlacedIsp {
    pub(crate) name: At<String>,
    pub(crate) asns: Vec<At<u32>>,
    pub(crate) prefixes: Vec<At<IpNet>>,
}

/// `[[site]]` with its places; the ISP is still a name.
pub(crate) struct PlacedSite {
    pub(crate) name: At<String>,
    pub(crate) isp: Option<At<String>>,
    /// Names of [[clients]].
    pub(crate) serves: Vec<At<String>>,
    /// Place of `token_file`.
    pub(crate) token: Option<std::ops::Range<usize>>,
    pub(crate) site: Site,
}

/// `[[zone]]` with its places; the file is not read yet.
pub(crate) struct PlacedZone {
    pub(crate) name: At<Name>,
    pub(crate) file: At<PathBuf>,
}

impl PlacedIsp {
    /// The ISP alone.
    pub(crate) fn into_isp(self) -> Isp {
        Isp {
            name: self.name.value,
            asns: self.asns.into_iter().map(|a| a.value).collect(),
            prefixes: self.prefixes.into_iter().map(|p| p.value).collect(),
        }
    }
}

/// What stands in while checking goes on without the section.
pub(crate) fn no_dataplane() -> Dataplane {
    Dataplane {
        cores: Vec::new(),
        share_cores: false,
        idle: Idle::Spin,
        memory_bytes: MEMORY_DEFAULT,
        buffers: BUFFERS_DEFAULT,
        eal: Vec::new(),
    }
}

/// A string and its place.
pub(crate) fn placed_word(value: Option<Value<'_>>) -> Option<At<String>> {
    let value = value?;
    let text = value.word(NAME_MAX)?;
    Some(At {
        value: text.to_owned(),
        span: value.span,
    })
}

/// An absolute domain name; the final dot may be left out.
pub(crate) fn domain_name(value: &Value<'_>) -> Option<Name> {
    let text = value.string()?;
    if text.is_empty() || !text.is_ascii() {
        return value.wrong(format!(
            "`{text}` is not a domain name (international names are written xn--...)"
        ));
    }
    match text.parse::<Name>() {
        Ok(name) => Some(name),
        Err(error) => value.wrong(format!("`{text}` is not a domain name: {error}")),
    }
}

/// `[appliance]`.
pub(crate) fn appliance(table: Option<&Table<'_>>) -> Appliance {
    let name = table
        .and_then(|table| table.get("name"))
        .and_then(|value| value.word(NAME_MAX));
    let state = table.and_then(|table| table.get("state")).and_then(|value| {
        let text = value.string()?;
        if !text.starts_with('/') || text.contains('\0') {
            return value.wrong(format!(
                "`state` must be the absolute path of a folder, not `{text}`"
            ));
        }
        Some(PathBuf::from(text))
    });
    let day = Duration::from_secs(24 * 3600);
    let max_age = table.and_then(|table| table.get("state_max_age"));
    let max_age = max_age.and_then(|value| value.duration(Duration::ZERO..=day * 7, "from 0s to 168h"));
    Appliance {
        name: name.unwrap_or("windrose").to_owned(),
        state,
        state_max_age: max_age.unwrap_or(Duration::from_secs(3600)),
    }
}

/// `[dataplane]`, and where `buffers` and the section stand.
pub(crate) fn dataplane(table: &Table<'_>) -> Dataplane {
    let share_cores = table
        .get("share_cores")
        .and_then(|value| value.boolean())
        .unwrap_or(false);
    let idle = table
        .get("idle")
        .and_then(|v| v.choice(&[("spin", Idle::Spin), ("sleep", Idle::Sleep)]));
    let memory = table
        .get("memory")
        .and_then(|value| value.size(64 << 20..=1 << 40, "from 64MB to 1TB"));
    let buffers = table
        .get("buffers")
        .and_then(|value| value.integer(1024..=1 << 22));
    let result = Dataplane {
        cores: cores(table, share_cores),
        share_cores,
        idle: idle.unwrap_or(Idle::Spin),
        memory_bytes: memory.unwrap_or(MEMORY_DEFAULT),
        buffers: buffers.unwrap_or(BUFFERS_DEFAULT),
        eal: table.get("eal").and_then(|value| eal(&value)).unwrap_or_default(),
    };
    let needed = result.cores.len() as u64 * u64::from(result.buffers) * MBUF_BYTES;
    if needed > result.memory_bytes {
        let span = table.get("memory").map_or(table.span.clone(), |value| value.span);
        let message = format!(
            "{} buffers for each of {} workers take {}MB, more than `memory`",
            result.buffers,
            result.cores.len(),
            needed.div_ceil(1 << 20)
        );
        table
            .report
            .error_help(span, message, Some("raise `memory` or lower `buffers`".into()));
    }
    result
}

/// `cores = [1, 2]`; the same CPU twice only if cores are shared.
fn cores(table: &Table<'_>, share_cores: bool) -> Vec<usize> {
    let Some(value) = table.need("cores") else {
        return Vec::new();
    };
    let items = value.some_items("name at least one CPU, one worker for each");
    if items.len() > 64 {
        value.wrong::<()>("`cores` names more than 64 CPUs");
    }
    let mut cores = Vec::new();
    for item in items {
        let Some(core) = item.integer::<usize>(0..=1023) else {
            continue;
        };
        if cores.contains(&core) && !share_cores {
            table.report.error_help(
                item.span,
                format!("CPU {core} is given to two workers"),
                Some("name each CPU once, or set `share_cores = true` in a lab".into()),
            );
        }
        cores.push(core);
    }
    cores
}

fn eal(value: &Value<'_>) -> Option<Vec<String>> {
    let argument = |item: &Value<'_>| {
        let text = item.string()?;
        if text.contains('\0') {
            return item.wrong("an EAL argument cannot hold a NUL byte");
        }
        Some(text.to_owned())
    };
    Some(value.items()?.iter().filter_map(argument).collect())
}

/// `[[port]]`.
pub(crate) fn port(table: &Table<'_>) -> Option<PlacedPort> {
    let name = placed_word(table.need("name"));
    let device = table.need("device").and_then(|value| {
        let text = value.word(1024)?;
        Some(At {
            value: text.to_owned(),
            span: value.span,
        })
    });
    let mut addresses = Vec::new();
    let role = latency::role(table);
    let value = match role {
        Role::Service => table.need("addresses"),
        Role::Mirror | Role::Bridge(_) => table.get("addresses"),
    };
    if let Some(value) = value {
        if matches!(role, Role::Bridge(_)) {
            let _: Option<()> = value.wrong("a bridge port passes everything on, and has no `addresses`");
        }
        let items = value.some_items("a port answers on at least one address");
        let placed = |item: &Value<'_>| {
            Some(At {
                value: item.address()?,
                span: item.span.clone(),
            })
        };
        addresses = items.iter().filter_map(placed).collect();
    }
    let mtu = table.get("mtu").and_then(|value| value.integer(576..=9216));
    let verify = table.get("verify_udp_checksum").and_then(|value| value.boolean());
    let rx = table
        .get("rx_descriptors")
        .and_then(|value| value.integer(32..=32768));
    let tx = table
        .get("tx_descriptors")
        .and_then(|value| value.integer(32..=32768));
    let (name, device) = (name?, device?);
    let port = Port {
        name: name.value.clone(),
        device: device.value.clone(),
        role,
        addresses: addresses.iter().map(|address| address.value).collect(),
        mtu,
        verify_udp_checksum: verify.unwrap_or(true),
        rx_descriptors: rx.unwrap_or(1024),
        tx_descriptors: tx.unwrap_or(1024),
    };
    Some(PlacedPort {
        name,
        device,
        addresses,
        port,
        span: table.span.clone(),
    })
}

/// `[dns]`. A relative file is taken from the folder `base`, where the TOML file lies.
pub(crate) fn dns(table: &Table<'_>, base: &Path) -> Dns {
    let text = |key, longest| {
        table.get(key).and_then(|value| {
            let text = value.string()?;
            if text.is_empty() || text.len() > longest {
                return value.wrong(format!(
                    "`{key}` must be from 1 to {longest} bytes, not {}",
                    text.len()
                ));
            }
            Some(text.to_owned())
        })
    };
    let cookies = table.get("cookies").and_then(|v| v.table("[dns.cookies]"));
    let rate_limit = table.get("rate_limit").and_then(|v| v.table("[dns.rate_limit]"));
    let size = table
        .get("udp_size_max")
        .and_then(|value| value.integer(512..=1400));
    Dns {
        udp_size_max: size.unwrap_or(1232),
        nsid: text("nsid", 64),
        ecs: table.get("ecs").and_then(|value| value.boolean()).unwrap_or(true),
        // A TXT record's string has one byte of length.
        version: text("version", 255),
        hostname: text("hostname", 255),
        tcp: match table.get("tcp").and_then(|value| value.table("[dns.tcp]")) {
            Some(table) => table.read(super::tcp::tcp),
            None => Tcp::default(),
        },
        cookies: cookies.map_or_else(Cookies::default, |t| t.read(|t| abuse::cookies(t, base))),
        rate_limit: rate_limit.and_then(|t| t.read(abuse::rate_limit)),
    }
}

/// `[[isp]]`.
pub(crate) fn isp(table: &Table<'_>) -> Option<PlacedIsp> {
    let name = placed_word(table.need("name"));
    let (asns, prefixes) = (table.get("asns"), table.get("prefixes"));
    if asns.is_none() && prefixes.is_none() {
        let help = Some("add `asns = [...]`, whose prefixes [data] gives, or `prefixes = [...]`".into());
        let message = "[[isp]] has neither `asns` nor `prefixes`";
        table.report.error_help(table.span.clone(), message, help);
    }
    let asn = |value: &Value<'_>| {
        Some(At {
            // 0 and the last are no autonomous system (RFC 7607, RFC 7300).
            value: value.integer(1..=0xffff_fffe)?,
            span: value.span.clone(),
        })
    };
    Some(PlacedIsp {
        name: name?,
        asns: items(asns.as_ref()).iter().filter_map(asn).collect(),
        prefixes: items(prefixes.as_ref()).iter().filter_map(prefix).collect(),
    })
}

fn items<'a>(value: Option<&Value<'a>>) -> Vec<Value<'a>> {
    value.and_then(Value::items).unwrap_or_default()
}

/// A prefix with no bit set beyond its length.
pub(crate) fn prefix(value: &Value<'_>) -> Option<At<IpNet>> {
    let text = value.string()?;
    let Ok(net) = text.parse::<IpNet>() else {
        return value.wrong(format!("`{text}` is not a prefix such as \"192.0.2.0/24\""));
    };
    if net != net.trunc() {
        let message = format!("`{text}` has bits set beyond its length");
        value.report.error_help(
            value.span.clone(),
            message,
            Some(format!("did you mean `{}`?", net.trunc())),
        );
        return None;
    }
    Some(At {
        value: net,
        span: value.span.clone(),
    })
}

/// `location = [latitude, longitude]`, degrees.
pub(crate) fn location(value: &Value<'_>) -> Option<(f64, f64)> {
    let items = value.items()?;
    let [lat, lon] = items.as_slice() else {
        return value.wrong("`location` must be [latitude, longitude]");
    };
    let (lat, lon) = (lat.number()?, lon.number()?);
    // Written so that NaN is refused as well.
    if !(lat.abs() <= 90.0 && lon.abs() <= 180.0) {
        return value.wrong("`location` must be [latitude, longitude]: -90 to 90 and -180 to 180 degrees");
    }
    Some((lat, lon))
}

/// `[[site]]`. A relative file is taken from the folder `base`, where the TOML file lies.
pub(crate) fn site(table: &Table<'_>, base: &Path) -> Option<PlacedSite> {
    let name = placed_word(table.need("name"));
    let isp = placed_word(table.get("isp"));
    let location = table.get("location").and_then(|value| location(&value));
    let preference = table
        .get("preference")
        .and_then(|value| value.integer(0..=255))
        .unwrap_or(128);
    let country = table.get("country").and_then(|value| selection::country(&value));
    let continent = table
        .get("continent")
        .and_then(|value| selection::continent(&value));
    // A country brings its continent and its middle, as it does for clients.
    let known = country.and_then(countries::find);
    let continent = continent.or(known.map(|known| known.continent));
    let middle = known.map(|known| {
        let degrees = |tenthousandths: i32| f64::from(tenthousandths) / 10_000.0;
        (degrees(known.middle.latitude), degrees(known.middle.longitude))
    });
    let location = location.or(middle);
    let bias = table.get("bias").and_then(|value| value.integer(-99..=99));
    let count = |key| {
        table
            .get(key)
            .and_then(|value| value.integer::<u64>(1..=i64::MAX))
    };
    let (sessions_max, connections_max) = (count("sessions_max"), count("connections_per_second_max"));
    let bandwidth_max_bps = table.get("bandwidth_max").and_then(|value| value.bandwidth());
    let serves = table.get("serves").and_then(|value| value.items());
    let serves = serves.into_iter().flatten().filter_map(|v| placed_word(Some(v)));
    let serves = serves.collect();
    let token = table.get("token_file");
    let tokens = token.as_ref().map(|value| super::reports::tokens(value, base));
    let on_silence = table
        .get("on_silence")
        .and_then(|v| super::reports::on_silence(&v));
    let name = name?;
    let site = Site {
        name: name.value.clone(),
        location,
        preference,
        country,
        continent,
        bias: bias.unwrap_or(0),
        sessions_max,
        bandwidth_max_bps,
        connections_max,
        // These two are names, and found later.
        isp: None,
        serves: Vec::new(),
        tokens: tokens.unwrap_or_default(),
        on_silence: on_silence.unwrap_or_default(),
    };
    Some(PlacedSite {
        name,
        isp,
        serves,
        token: token.map(|value| value.span),
        site,
    })
}

/// `[[zone]]`. A relative file is taken from the folder `base`, where the TOML file lies.
pub(crate) fn zone(table: &Table<'_>, base: &Path) -> Option<PlacedZone> {
    let name = table.need("name").and_then(|v| {
        Some(At {
            value: domain_name(&v)?,
            span: v.span.clone(),
        })
    });
    let file = table.need("file").and_then(|value| {
        let text = value.string()?;
        Some(At {
            value: base.join(text),
            span: value.span,
        })
    });
    Some(PlacedZone {
        name: name?,
        file: file?,
    })
}

/// `[admin]`.
pub(crate) fn admin(table: Option<&Table<'_>>) -> Admin {
    let get = |key| table.and_then(|table| table.get(key));
    let socket = get("socket").and_then(|value| {
        let text = value.string()?;
        if text.is_empty() || text.len() > SOCKET_PATH_MAX || text.contains('\0') {
            return value.wrong(format!("`socket` must be a path of 1 to {SOCKET_PATH_MAX} bytes"));
        }
        Some(PathBuf::from(text))
    });
    let listen_value = get("listen");
    let listen = listen_value.as_ref().and_then(|value| {
        let text = value.string()?;
        text.parse()
            .ok()
            .or_else(|| value.wrong(format!("`{text}` is not ADDRESS:PORT such as 127.0.0.1:9153")))
    });
    let token_value = get("token");
    let token = token_value.as_ref().and_then(|value| {
        // No message may hold the token itself.
        let text = value.string()?;
        if text.len() < TOKEN_MIN || !text.bytes().all(|byte| byte.is_ascii_graphic()) {
            let message =
                format!("`token` must be {TOKEN_MIN} or more printable ASCII characters without spaces");
            return value.wrong(message);
        }
        Some(text.to_owned())
    });
    if let Some(value) = token_value
        && listen_value.is_none()
    {
        value.report.warning(
            value.span,
            "`token` has no effect without `listen`",
            "add `listen`, or remove it",
        );
    }
    Admin {
        socket: socket.unwrap_or_else(|| PathBuf::from("/run/windrose.sock")),
        listen,
        token,
    }
}
