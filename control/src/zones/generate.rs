//! $GENERATE (BIND 9 Administrator Reference Manual, "The $GENERATE Directive"): lines made of a template and a range of
//! numbers. Called by `master`.

use super::master::{Entry, Wrong};
use domain::base::iana::Rtype;
use std::ops::Range;

/// Records that one directive may make: a typing error in the range should not fill the memory.
const NUMBERS_MAX: u64 = 1 << 20;
/// Widest padding.
const WIDTH_MAX: usize = 255;

/// A directive: the range, and the line with its places for the number.
pub(super) struct Template<'e, 't> {
    entry: &'e Entry<'t>,
    start: u64,
    stop: u64,
    step: u64,
}

impl<'e, 't> Template<'e, 't> {
    /// Reads the range; the line itself is read when it is made.
    pub(super) fn new(entry: &'e Entry<'t>) -> Result<Self, Wrong> {
        let help = "as in `$GENERATE 1-100 host-$ A 192.0.2.$`, or 0-254/2 to take every second number";
        let wrong = || {
            let message = format!("`{}` is not a range of numbers", entry.show(1));
            Wrong::new(entry.span(1), message).help(help)
        };
        if entry.tokens.len() < 5 {
            let message = "$GENERATE needs a range, an owner, a type and data";
            return Err(Wrong::new(entry.span(entry.tokens.len()), message).help(help));
        }
        let range = entry.show(1);
        let (range, step) = range.split_once('/').unwrap_or((&range, "1"));
        let (start, stop) = range.split_once('-').ok_or_else(wrong)?;
        let number = |text: &str| text.parse::<u32>().map(u64::from).map_err(|_| wrong());
        let (start, stop, step) = (number(start)?, number(stop)?, number(step)?);
        if start > stop || step == 0 {
            return Err(wrong());
        }
        if (stop - start) / step >= NUMBERS_MAX {
            let message = format!("more than {NUMBERS_MAX} records by one directive");
            return Err(Wrong::new(entry.span(1), message).help("is the range meant?"));
        }
        Ok(Self {
            entry,
            start,
            stop,
            step,
        })
    }

    /// The numbers of the range.
    pub(super) fn numbers(&self) -> impl Iterator<Item = u64> + use<> {
        (self.start..=self.stop).step_by(self.step as usize)
    }

    /// The line for one number.
    pub(super) fn line(&self, number: u64, out: &mut Vec<u8>) -> Result<(), Wrong> {
        let last = self.entry.tokens.len() - 1;
        // BIND takes one token for all of RDATA, in quotes if there are spaces: `MX "10 mail-$"`.
        let is_type = self.entry.show(last - 1).parse::<Rtype>().is_ok();
        for (index, token) in self.entry.tokens.iter().enumerate().skip(2) {
            if index > 2 && !token.glued {
                out.push(b' ');
            }
            let quote = (token.quoted && !(is_type && index == last)).then_some(b'"');
            out.extend(quote);
            self.token(token.start..token.end, number, quote.is_none(), out)?;
            out.extend(quote);
        }
        Ok(())
    }

    /// One token, its `$` replaced. `\$` and `$$` are a dollar sign; what stands `bare`, without its quotes, may have
    /// quotes of its own as `\"`.
    fn token(&self, span: Range<usize>, number: u64, bare: bool, out: &mut Vec<u8>) -> Result<(), Wrong> {
        let text = self.entry.text.get(span.clone()).unwrap_or_default();
        let mut at = 0;
        while let Some(&byte) = text.get(at) {
            let rest = text.get(at + 1..).unwrap_or_default();
            at += 1;
            match (byte, rest) {
                (b'\\', [b'$', ..]) | (b'$', [b'$', ..]) => {
                    out.extend_from_slice(b"\\$");
                    at += 1;
                }
                (b'\\', [b'"', ..]) if bare => {
                    out.push(b'"');
                    at += 1;
                }
                // Other escapes stay for the line to be read.
                (b'\\', [next, ..]) => {
                    out.extend_from_slice(&[byte, *next]);
                    at += 1;
                }
                (b'$', [b'{', inside @ ..]) => {
                    let place = span.start + at - 1..span.end;
                    let end = inside.iter().position(|&b| b == b'}');
                    let end = end.ok_or_else(|| Wrong::new(place.clone(), "`${` without a `}`"))?;
                    let form = inside.get(..end).unwrap_or_default();
                    let form = Form::parse(form).ok_or_else(|| {
                        Wrong::new(place.clone(), "not a form for the number")
                            .help("${OFFSET,WIDTH,BASE}: BASE is d, o, x, X, n or N, as in ${0,3,d}")
                    })?;
                    let wrong =
                        || Wrong::new(place.clone(), format!("{number} with this offset is no number"));
                    form.write(number, out).ok_or_else(wrong)?;
                    at += end + 2;
                }
                (b'$', _) => out.extend_from_slice(number.to_string().as_bytes()),
                _ => out.push(byte),
            }
        }
        Ok(())
    }
}

/// `OFFSET[,WIDTH[,BASE]]`.
struct Form {
    offset: i64,
    width: usize,
    base: u8,
}

impl Form {
    fn parse(text: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(text).ok()?;
        let mut parts = text.split(',');
        let offset: i32 = parts.next()?.parse().ok()?;
        let width = parts.next().map_or(Some(0), |w| w.parse().ok())?;
        let base = parts.next().unwrap_or("d");
        let fine = parts.next().is_none() && width <= WIDTH_MAX && "doxXnN".contains(base) && base.len() == 1;
        fine.then_some(Self {
            offset: offset.into(),
            width,
            base: *base.as_bytes().first()?,
        })
    }

    fn write(&self, number: u64, out: &mut Vec<u8>) -> Option<()> {
        let value = u32::try_from(i64::try_from(number).ok()? + self.offset).ok()?;
        let width = self.width;
        let text = match self.base {
            b'o' => format!("{value:0width$o}"),
            b'x' => format!("{value:0width$x}"),
            b'X' => format!("{value:0width$X}"),
            b'n' | b'N' => nibbles(value, width, self.base == b'N'),
            _ => format!("{value:0width$}"),
        };
        out.extend_from_slice(text.as_bytes());
        Some(())
    }
}

/// The hexadecimal digits from the lowest up with dots between, in `width` characters at least: for ip6.arpa.
fn nibbles(mut value: u32, width: usize, upper: bool) -> String {
    let mut text = String::new();
    loop {
        let digit = char::from_digit(value & 15, 16).unwrap_or('0');
        text.push(if upper { digit.to_ascii_uppercase() } else { digit });
        value >>= 4;
        if value == 0 && text.len() >= width {
            return text;
        }
        text.push('.');
        if value == 0 && text.len() >= width {
            return text;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Made by BIND 9.18 (`named-compilezone`).
    #[test]
    fn forms_are_binds() {
        for (form, number, want) in [
            ("0", 5, "5"),
            ("10", 5, "15"),
            ("-5", 5, "0"),
            ("0,3", 5, "005"),
            ("0,3,d", 1234, "1234"),
            ("0,4,x", 171, "00ab"),
            ("0,4,X", 171, "00AB"),
            ("0,0,o", 8, "10"),
            ("0,0,n", 171, "b.a"),
            ("0,2,n", 1, "1."),
            ("0,3,n", 1, "1.0"),
            ("0,4,n", 16, "0.1."),
            ("0,7,N", 171, "B.A.0.0"),
        ] {
            let mut out = Vec::new();
            Form::parse(form.as_bytes())
                .unwrap()
                .write(number, &mut out)
                .unwrap();
            assert_eq!(String::from_utf8(out).unwrap(), want, "{form} of {number}");
        }
    }
}
