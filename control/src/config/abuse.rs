//! Reads `[dns.cookies]` and `[dns.rate_limit]`: what keeps forged queries from doing harm. Called by `sections::dns`.

use super::model::{CookieMode, Cookies, RateLimit};
use super::reader::{Table, Value};
use super::sections::prefix;
use dataplane::wire::cookie::{Secret, Secrets};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// `[dns.cookies]`. A relative file is taken from the folder `base`, where the TOML file lies.
pub(crate) fn cookies(table: &Table<'_>, base: &Path) -> Cookies {
    let modes = [
        ("on", CookieMode::On),
        ("off", CookieMode::Off),
        ("require", CookieMode::Require),
    ];
    let mode = table.get("mode").and_then(|value| value.choice(&modes));
    let file = table.get("secret_file");
    if let (Some(CookieMode::Off), Some(value)) = (mode, &file) {
        value.report.warning(
            value.span.clone(),
            "`secret_file` has no effect with `mode = \"off\"`",
            "remove one of them",
        );
    }
    Cookies {
        mode: mode.unwrap_or(CookieMode::On),
        secrets: file.and_then(|value| secrets(&value, base)),
    }
}

/// The secrets of a file. No message may hold any of its text.
fn secrets(value: &Value<'_>, base: &Path) -> Option<Secrets> {
    let path = base.join(value.string()?);
    let shown = path.display();
    let wrong = |message: String, help: &str| {
        value
            .report
            .error_help(value.span.clone(), message, Some(help.to_owned()));
        None
    };
    const MAKE: &str = "each line holds 32 hexadecimal digits, the secret in use first; to make one: \
                        head -c 16 /dev/urandom | xxd -p";
    let text = match std::fs::read(&path) {
        Ok(text) => text,
        Err(error) => {
            return wrong(
                format!("cannot read the cookie secrets in {shown}: {error}"),
                "a relative file is taken from the folder of the configuration",
            );
        }
    };
    if let Ok(metadata) = std::fs::metadata(&path)
        && metadata.permissions().mode() & 0o007 != 0
    {
        value.report.warning(
            value.span.clone(),
            format!("everybody on this host can read the cookie secrets in {shown}"),
            format!("chmod o= {shown}"),
        );
    }
    let mut found = Vec::new();
    for (number, line) in text.split(|byte| *byte == b'\n').enumerate() {
        let line = line.trim_ascii();
        if line.is_empty() || line.starts_with(b"#") {
            continue;
        }
        match secret(line) {
            Some(secret) => found.push(secret),
            None => return wrong(format!("{shown}:{}: not a cookie secret", number + 1), MAKE),
        }
    }
    match found[..] {
        [current] => Some(Secrets { current, other: None }),
        [current, other] => Some(Secrets {
            current,
            other: Some(other),
        }),
        [] => wrong(format!("there is no cookie secret in {shown}"), MAKE),
        _ => wrong(
            format!("there are {} cookie secrets in {shown}", found.len()),
            "two at most: the one in use, then the one before or the one to come",
        ),
    }
}

/// A secret from 32 hexadecimal digits.
fn secret(digits: &[u8]) -> Option<Secret> {
    let digits: &[u8; 32] = digits.try_into().ok()?;
    let mut bytes = [0; 16];
    for (byte, pair) in bytes.iter_mut().zip(digits.as_chunks::<2>().0) {
        let [high, low] = pair.map(|digit| char::from(digit).to_digit(16));
        *byte = (high? << 4 | low?) as u8;
    }
    Some(Secret::new(bytes))
}

/// `[dns.rate_limit]`; `None` when its rate is missing or wrong.
pub(crate) fn rate_limit(table: &Table<'_>) -> Option<RateLimit> {
    let per_second = table
        .need("responses_per_second")
        .and_then(|value| value.integer(1..=1_000_000));
    let get = |key, range| table.get(key).and_then(|value| value.integer::<u32>(range));
    let burst = get("burst", 1..=10_000_000);
    let slip = get("slip", 0..=100);
    let prefix_v4 = get("ipv4_prefix", 8..=32);
    let prefix_v6 = get("ipv6_prefix", 16..=64);
    let allow = table.get("allow").and_then(|value| value.items());
    let allow = allow.iter().flatten().filter_map(prefix).map(|at| at.value);
    let allow = allow.collect();
    let per_second: u32 = per_second?;
    Some(RateLimit {
        per_second,
        burst: burst.unwrap_or(per_second),
        slip: slip.unwrap_or(2) as u8,
        prefix_v4: prefix_v4.unwrap_or(24) as u8,
        prefix_v6: prefix_v6.unwrap_or(56) as u8,
        allow,
    })
}
