//! Values with a unit, as configuration and zone files write them: sizes, durations, DNS TTLs.

use std::time::Duration;

/// Bytes of "256MB". Units are powers of 1024, as memory is counted: B, KB, MB, GB, TB (KiB and so
/// on say the same). Errors say what is wrong.
pub(crate) fn size(text: &str) -> Result<u64, String> {
    let (number, unit) = split(text);
    let factor: u64 = match unit.to_ascii_lowercase().as_str() {
        "b" => 1,
        "kb" | "kib" => 1 << 10,
        "mb" | "mib" => 1 << 20,
        "gb" | "gib" => 1 << 30,
        "tb" | "tib" => 1 << 40,
        "" => {
            return Err(format!(
                "`{text}` has no unit: write KB, MB or GB after the number"
            ));
        }
        _ => return Err(format!("`{unit}` is not a unit of size: use KB, MB or GB")),
    };
    let number: u64 = number
        .parse()
        .map_err(|_| format!("`{text}` is not a size such as \"256MB\""))?;
    number
        .checked_mul(factor)
        .ok_or_else(|| format!("`{text}` is too large"))
}

/// "1s", "250ms", "1.5s", "2m", "1h".
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    let (number, unit) = split(text);
    let second = match unit {
        "us" => 1e-6,
        "ms" => 1e-3,
        "s" => 1.0,
        "m" => 60.0,
        "h" => 3600.0,
        "" => {
            return Err(format!(
                "`{text}` has no unit: write ms, s, m or h after the number"
            ));
        }
        _ => return Err(format!("`{unit}` is not a unit of time: use ms, s, m or h")),
    };
    let number: f64 = number
        .parse()
        .map_err(|_| format!("`{text}` is not a duration such as \"250ms\""))?;
    Duration::try_from_secs_f64(number * second).map_err(|_| format!("`{text}` is too long"))
}

/// Thousandths of "10%" or "12.5%".
pub(crate) fn share(text: &str) -> Result<u32, String> {
    let (number, unit) = split(text);
    let wrong = || format!("`{text}` is not a share such as \"10%\"");
    if unit != "%" {
        return Err(wrong());
    }
    let (whole, tenths) = number.split_once('.').unwrap_or((number, "0"));
    let whole: u32 = whole.parse().map_err(|_| wrong())?;
    // Not finer than it is counted.
    let tenths: u32 = match tenths.as_bytes() {
        [digit] => u32::from(digit - b'0'),
        _ => return Err(format!("`{text}` is too fine: one digit after the point")),
    };
    let share = whole.checked_mul(10).and_then(|share| share.checked_add(tenths));
    share.ok_or_else(|| format!("`{text}` is too large"))
}

/// Metres of "100km" or "500m".
pub(crate) fn distance(text: &str) -> Result<u64, String> {
    let (number, unit) = split(text);
    let metre = match unit {
        "m" => 1,
        "km" => 1000,
        "" => return Err(format!("`{text}` has no unit: write km or m after the number")),
        _ => return Err(format!("`{unit}` is not a unit of distance: use km or m")),
    };
    whole(text, number, metre, "a distance such as \"100km\"")
}

/// Bits per second of "900Mbps". Units are powers of 1000, as bandwidth is counted.
pub(crate) fn bandwidth(text: &str) -> Result<u64, String> {
    let (number, unit) = split(text);
    let factor = match unit.to_ascii_lowercase().as_str() {
        "bps" => 1,
        "kbps" => 1_000,
        "mbps" => 1_000_000,
        "gbps" => 1_000_000_000,
        "tbps" => 1_000_000_000_000,
        "" => {
            return Err(format!(
                "`{text}` has no unit: write Mbps or Gbps after the number"
            ));
        }
        _ => return Err(format!("`{unit}` is not a unit of bandwidth: use Mbps or Gbps")),
    };
    whole(text, number, factor, "a bandwidth such as \"900Mbps\"")
}

/// A whole number of units, or one with a point that comes to a whole number of the smallest.
fn whole(text: &str, number: &str, factor: u64, what: &str) -> Result<u64, String> {
    let wrong = || format!("`{text}` is not {what}");
    let large = || format!("`{text}` is too large");
    let (units, part) = number.split_once('.').unwrap_or((number, ""));
    let units: u64 = units.parse().map_err(|_| wrong())?;
    let mut total = units.checked_mul(factor).ok_or_else(large)?;
    let mut unit = factor;
    for digit in part.bytes() {
        if !digit.is_ascii_digit() {
            return Err(wrong());
        }
        unit /= 10;
        total = total
            .checked_add(u64::from(digit - b'0') * unit)
            .ok_or_else(large)?;
    }
    Ok(total)
}

/// The digits (and one point) at the front, and what follows.
fn split(text: &str) -> (&str, &str) {
    let end = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    (&text[..end], text[end..].trim_start())
}

/// Seconds of a TTL in a zone file: a number, or BIND's "1h30m" (units w, d, h, m, s). `None` if it
/// is neither or passes 32 bits.
pub(crate) fn zone_ttl(text: &[u8]) -> Option<u32> {
    let mut total: u32 = 0;
    let mut number: Option<u32> = None;
    for &byte in text {
        let factor: u32 = match byte.to_ascii_lowercase() {
            digit @ b'0'..=b'9' => {
                let next = number
                    .unwrap_or(0)
                    .checked_mul(10)?
                    .checked_add(u32::from(digit - b'0'))?;
                number = Some(next);
                continue;
            }
            b's' => 1,
            b'm' => 60,
            b'h' => 3600,
            b'd' => 86_400,
            b'w' => 604_800,
            _ => return None,
        };
        total = total.checked_add(number.take()?.checked_mul(factor)?)?;
    }
    match number {
        Some(seconds) => total.checked_add(seconds),
        None if text.is_empty() => None,
        None => Some(total),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_powers_of_1024() {
        assert_eq!(size("256MB"), Ok(268_435_456));
        assert_eq!(size("1 GiB"), Ok(1_073_741_824));
        assert!(size("256").is_err_and(|e| e.contains("no unit")));
        assert!(size("256XB").is_err_and(|e| e.contains("`XB`")));
        assert!(size("MB").is_err());
        assert!(size("99999999999TB").is_err_and(|e| e.contains("too large")));
    }

    #[test]
    fn shares_are_counted_in_tenths_of_a_percent() {
        assert_eq!(share("10%"), Ok(100));
        assert_eq!(share("12.5%"), Ok(125));
        assert_eq!(share("0%"), Ok(0));
        for wrong in ["10", "%", "1.25%", "1.%", "1..5%", "-1%", "10 percent"] {
            assert!(share(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn distances_and_bandwidths_have_a_unit() {
        assert_eq!(distance("100km"), Ok(100_000));
        assert_eq!(distance("1.5km"), Ok(1500));
        assert!(distance("100").is_err_and(|e| e.contains("no unit")));
        assert!(distance("3mi").is_err_and(|e| e.contains("`mi`")));
        assert_eq!(bandwidth("900Mbps"), Ok(900_000_000));
        assert_eq!(bandwidth("1.5 Gbps"), Ok(1_500_000_000));
        assert!(bandwidth("900").is_err_and(|e| e.contains("no unit")));
        assert!(bandwidth("900MB").is_err());
        assert!(bandwidth("99999999Tbps").is_err_and(|e| e.contains("too large")));
    }

    #[test]
    fn durations_have_a_unit() {
        assert_eq!(duration("250ms"), Ok(Duration::from_millis(250)));
        assert_eq!(duration("1.5s"), Ok(Duration::from_millis(1500)));
        assert_eq!(duration("2m"), Ok(Duration::from_secs(120)));
        assert!(duration("5").is_err_and(|e| e.contains("no unit")));
        assert!(duration("1.2.3s").is_err());
        assert!(duration("99999999999999999999h").is_err_and(|e| e.contains("too long")));
        assert!(duration("-1s").is_err());
    }

    #[test]
    fn zone_ttls_take_binds_units() {
        assert_eq!(zone_ttl(b"3600"), Some(3600));
        assert_eq!(zone_ttl(b"1h30m"), Some(5400));
        assert_eq!(zone_ttl(b"1W"), Some(604_800));
        assert_eq!(zone_ttl(b""), None);
        assert_eq!(zone_ttl(b"h"), None);
        assert_eq!(zone_ttl(b"4294967296"), None);
        assert_eq!(zone_ttl(b"99999w"), None);
    }
}
