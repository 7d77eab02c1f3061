//! LOC (RFC 1876): a place on earth, from presentation format. Called by `rdata::fields`.

use super::fields::word;
use super::{ScanError, Tokens};
use domain::base::scan::Scanner;

/// The equator and the prime meridian, in thousandths of a second of arc.
const ORIGIN: u32 = 1 << 31;
/// Altitude 0 is this many centimetres above the base.
const BASE: i64 = 10_000_000;

/// `d1 [m1 [s1]] {N|S} d2 [m2 [s2]] {E|W} alt[m] [size[m] [hp[m] [vp[m]]]]` to 16 octets.
pub(super) fn parse(scanner: &mut Tokens<'_>, wire: &mut Vec<u8>) -> Result<(), ScanError> {
    let latitude = angle(scanner, 90, ["N", "S"])?;
    let longitude = angle(scanner, 180, ["E", "W"])?;
    let altitude = centimetres(&word(scanner)?)? + BASE;
    let altitude = u32::try_from(altitude).map_err(|_| ScanError("an altitude out of range"))?;
    // Size and precisions default to 1 m, 10 km and 10 m.
    let mut sizes = [100, 1_000_000, 1_000];
    for size in &mut sizes {
        if scanner.continues() {
            *size = centimetres(&word(scanner)?)?;
        }
    }
    wire.push(0);
    for size in sizes {
        wire.push(mantissa(size)?);
    }
    wire.extend_from_slice(&latitude.to_be_bytes());
    wire.extend_from_slice(&longitude.to_be_bytes());
    wire.extend_from_slice(&altitude.to_be_bytes());
    Ok(())
}

/// Degrees, minutes and seconds up to the hemisphere.
fn angle(scanner: &mut Tokens<'_>, degrees_max: u32, [plus, minus]: [&str; 2]) -> Result<u32, ScanError> {
    const WRONG: ScanError =
        ScanError("not degrees, minutes and seconds with a hemisphere, as in 42 21 54 N");
    let mut parts = [0u32; 3];
    let mut count = 0;
    loop {
        let text = word(scanner)?;
        let sign = [plus, minus].iter().position(|h| text.eq_ignore_ascii_case(h));
        if let Some(sign) = sign.filter(|_| count > 0) {
            let [degrees, minutes, thousandths] = parts;
            let all = degrees * 3_600_000 + minutes * 60_000 + thousandths;
            if all > degrees_max * 3_600_000 {
                return Err(WRONG);
            }
            return Ok(if sign == 0 { ORIGIN + all } else { ORIGIN - all });
        }
        let limit = [degrees_max, 59, 59_999].get(count).copied().ok_or(WRONG)?;
        let value = match count {
            2 => fraction(&text, 3).and_then(|v| u32::try_from(v).ok()),
            _ => text.parse().ok(),
        };
        let slot = parts.get_mut(count).ok_or(WRONG)?;
        *slot = value.filter(|v| *v <= limit).ok_or(WRONG)?;
        count += 1;
    }
}

/// A number with at most `places` digits behind the point, times ten to that power.
fn fraction(text: &str, places: usize) -> Option<i64> {
    let (whole, behind) = text.split_once('.').unwrap_or((text, ""));
    let digits = |t: &str| t.bytes().all(|b| b.is_ascii_digit());
    let fine = digits(whole) && digits(behind) && !whole.is_empty() && whole.len() <= 9;
    if !fine || behind.len() > places {
        return None;
    }
    format!("{whole}{behind:0<places$}").parse().ok()
}

/// Metres, with or without an `m`.
fn centimetres(text: &str) -> Result<i64, ScanError> {
    let text = text.strip_suffix(['m', 'M']).unwrap_or(text);
    let (sign, text) = text.strip_prefix('-').map_or((1, text), |rest| (-1, rest));
    let value = fraction(text, 2).ok_or(ScanError("not metres such as 30m or -24.5"))?;
    Ok(sign * value)
}

/// A size as one digit and a power of ten.
fn mantissa(centimetres: i64) -> Result<u8, ScanError> {
    let mut power = 0;
    let mut digit = centimetres;
    while digit > 9 {
        digit /= 10;
        power += 1;
    }
    match (u8::try_from(digit), power) {
        (Ok(digit), 0..=9) => Ok(digit << 4 | power),
        _ => Err(ScanError("a size out of range")),
    }
}
