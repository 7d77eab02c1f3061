//! Reads `[reports]`, and what `[[site]]` and `[[service]]` have to do with it: tokens, and the rule for silence.
//! Called by `config::load` and by the agent's own configuration.

use super::model::{Appliance, OnSilence, Reports, Token};
use super::reader::{Table, Value};
use super::sections::{PlacedSite, TOKEN_MIN, prefix};
use std::collections::HashMap;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A report that comes later than this many intervals is missed.
const INTERVALS_MIN: u32 = 2;

/// `[reports]`. A relative file is taken from the folder `base`, where the TOML file lies.
pub(crate) fn reports(table: &Table<'_>, base: &Path) -> Option<Reports> {
    let listen = table.need("listen").and_then(|value| {
        let text = value.string()?;
        text.parse()
            .ok()
            .or_else(|| value.wrong(format!("`{text}` is not ADDRESS:PORT such as 192.0.2.1:8853")))
    });
    let time = |key, low, high, limits| {
        let range = Duration::from_millis(low)..=Duration::from_secs(high);
        table.get(key).and_then(|value| value.duration(range, limits))
    };
    let interval = time("interval", 100, 3600, "from 100ms to 1h").unwrap_or(Duration::from_secs(5));
    let silent_after = time("silent_after", 200, 86_400, "from 200ms to 24h").unwrap_or(interval * 4);
    if silent_after < interval * INTERVALS_MIN {
        let span = table.get("silent_after").map_or(table.span.clone(), |v| v.span);
        let message = format!("`silent_after` is {silent_after:?}, less than two intervals of {interval:?}");
        let help = "one late report would make a site silent: raise it, or lower `interval`";
        table.report.error_help(span, message, Some(help.into()));
    }
    let rtt_every = time("rtt_every", 1000, 86_400, "from 1s to 24h").unwrap_or(Duration::from_secs(60));
    let rtt_max_age = time("rtt_max_age", 1000, 86_400, "from 1s to 24h").unwrap_or(rtt_every * 10);
    if rtt_max_age <= rtt_every {
        let span = table.get("rtt_max_age").map_or(table.span.clone(), |v| v.span);
        let message = format!("`rtt_max_age` is {rtt_max_age:?}, and RTTs are measured every {rtt_every:?}");
        let help = Some("they would be forgotten before they are measured again: raise it".into());
        table.report.error_help(span, message, help);
    }
    let number = |key, range| table.get(key).and_then(|value| value.integer::<u32>(range));
    let rtt_prefixes = number("rtt_prefixes", 1..=65_536).unwrap_or(4096) as usize;
    let rtt_prefix_v4 = number("rtt_ipv4_prefix", 8..=32).unwrap_or(24) as u8;
    let rtt_prefix_v6 = number("rtt_ipv6_prefix", 16..=128).unwrap_or(48) as u8;
    let measure_value = table.get("measure");
    let measure = measure_value.as_ref().and_then(|value| value.items());
    let measure: Vec<_> = measure
        .iter()
        .flatten()
        .filter_map(prefix)
        .map(|at| at.value)
        .collect();
    if let Some(value) = measure_value.filter(|_| measure.len() > rtt_prefixes) {
        value.wrong::<()>(format!(
            "`measure` names {} prefixes, more than `rtt_prefixes` ({rtt_prefixes})",
            measure.len()
        ));
    }
    let certificate = certificate(table, base);
    Some(Reports {
        listen: listen?,
        certificate,
        interval,
        silent_after,
        measure,
        rtt_prefixes,
        rtt_every,
        rtt_max_age,
        rtt_prefix_v4,
        rtt_prefix_v6,
    })
}

/// `certificate` and `key`: both or none.
fn certificate(table: &Table<'_>, base: &Path) -> Option<(PathBuf, PathBuf)> {
    let (certificate, key) = (table.get("certificate"), table.get("key"));
    if let (Some(given), None) | (None, Some(given)) = (&certificate, &key) {
        let help =
            Some("give both, or none: then a certificate is made once and kept in the state folder".into());
        let message = "`certificate` and `key` go together";
        table.report.error_help(given.span.clone(), message, help);
    }
    let file = |value: Value<'_>| Some(base.join(value.string()?));
    Some((file(certificate?)?, file(key?)?))
}

/// `on_silence = "ignore" | "avoid"`.
pub(crate) fn on_silence(value: &Value<'_>) -> Option<OnSilence> {
    value.choice(&[("ignore", OnSilence::Ignore), ("avoid", OnSilence::Avoid)])
}

/// The tokens of a file: one a line, the one in use first, one more while it is replaced. No message may hold any of
/// its text.
pub(crate) fn tokens(value: &Value<'_>, base: &Path) -> Vec<Token> {
    let Some(path) = value.string().map(|text| base.join(text)) else {
        return Vec::new();
    };
    let shown = path.display();
    let wrong = |message: String, help: &str| {
        value
            .report
            .error_help(value.span.clone(), message, Some(help.to_owned()));
        Vec::new()
    };
    const MAKE: &str = "a line holds one token; to make one: head -c 24 /dev/urandom | base64";
    let text = match std::fs::read(&path) {
        Ok(text) => text,
        Err(error) => {
            return wrong(
                format!("cannot read the token in {shown}: {error}"),
                "a relative file is taken from the folder of the configuration",
            );
        }
    };
    if let Ok(metadata) = std::fs::metadata(&path)
        && metadata.permissions().mode() & 0o007 != 0
    {
        value.report.warning(
            value.span.clone(),
            format!("everybody on this host can read the token in {shown}"),
            format!("chmod o= {shown}"),
        );
    }
    let mut found = Vec::new();
    for (number, line) in text.split(|byte| *byte == b'\n').enumerate() {
        let line = line.trim_ascii();
        if line.is_empty() || line.starts_with(b"#") {
            continue;
        }
        if line.len() < TOKEN_MIN || !line.iter().all(u8::is_ascii_graphic) {
            let message = format!(
                "{shown}:{}: a token has {TOKEN_MIN} or more printable ASCII characters without spaces",
                number + 1
            );
            return wrong(message, MAKE);
        }
        found.push(Token(String::from_utf8_lossy(line).into_owned()));
    }
    match found.len() {
        0 => wrong(format!("there is no token in {shown}"), MAKE),
        1 | 2 => found,
        n => wrong(
            format!("there are {n} tokens in {shown}"),
            "two at most: the one in use, and the one before or the one to come",
        ),
    }
}

/// `[reports]` and the sites' tokens go together, no two sites share a token, and a certificate has a place.
pub(crate) fn cross(
    document: &Table<'_>,
    reports: Option<&Reports>,
    sites: &[PlacedSite],
    appliance: &Appliance,
) {
    let report = document.report;
    if let (Some(reports), Some(value)) = (reports, document.get("reports"))
        && reports.certificate.is_none()
        && appliance.state.is_none()
    {
        let message = "[reports] has no certificate, and there is no folder to keep a self-made one in";
        let help = "add `state = \"/var/lib/windrose\"` to [appliance], or `certificate` and `key` here";
        report.error_help(value.span, message, Some(help.into()));
    }
    let mut seen: HashMap<&Token, &str> = HashMap::new();
    for site in sites {
        let Some(span) = &site.token else { continue };
        for token in &site.site.tokens {
            if let Some(other) = seen.insert(token, &site.name.value)
                && other != site.name.value
            {
                let message = format!("sites `{other}` and `{}` have the same token", site.name.value);
                let help = "each could report in the other's name: give each its own".to_owned();
                report.error_help(span.clone(), message, Some(help));
            }
        }
        if document.get("reports").is_none() {
            report.warning(
                span.clone(),
                format!("site `{}` has a token and there is no [reports]", site.name.value),
                "add [reports] with `listen`, or remove it",
            );
        }
    }
    if let (Some(_), Some(value)) = (reports, document.get("reports"))
        && sites.iter().all(|site| site.token.is_none())
    {
        report.warning(
            value.span,
            "nobody can report: no [[site]] has a `token_file`",
            "add one to each site that reports, or remove [reports]",
        );
    }
}

#[cfg(test)]
#[path = "reports_tests.rs"]
mod tests;
