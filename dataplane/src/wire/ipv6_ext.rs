//! IPv6 extension headers (RFC 8200 section 4): the bounded walk to the upper layer.
//!
//! ```text
//!  hop-by-hop, destination options          fragment
//!  0  next header (1)                       0  next header (1), reserved (1)
//!  1  length in 8 bytes, first not counted  2  offset (13 bits) reserved (2) M (1)
//!  2  options: type (1), length (1), value  4  identification (4)
//! ```

/// Next header value of hop-by-hop options.
pub const HOP_BY_HOP: u8 = 0;
/// Next header value of a routing header.
pub const ROUTING: u8 = 43;
/// Next header value of a fragment header.
pub const FRAGMENT: u8 = 44;
/// Next header value of ESP.
pub const ESP: u8 = 50;
/// Next header value of AH.
pub const AUTHENTICATION: u8 = 51;
/// Next header value of "no next header".
pub const NO_NEXT: u8 = 59;
/// Next header value of destination options.
pub const DESTINATION: u8 = 60;

/// Headers walked at most; more are refused. Senders of DNS queries use none, RFC 8200 section 4.1
/// allows four kinds before the upper layer.
pub const HEADERS_MAX: usize = 4;
/// Options walked at most in one header: the limit that RFC 8504 section 5.3 proposes.
pub const OPTIONS_MAX: usize = 8;

/// How a walk ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Walk {
    /// The upper layer begins `offset` bytes into the payload.
    Upper {
        /// Protocol of the upper layer.
        next_header: u8,
        /// Bytes of extension headers.
        offset: usize,
    },
    /// A fragment header that is not that of an atomic fragment.
    Fragment,
    /// A header that is not walked, too many of them, or one that is malformed.
    Refused,
}

/// True when a next header value is an extension header (IANA, "IPv6 Extension Header Types"), or none.
#[inline(always)]
pub const fn is_extension(next_header: u8) -> bool {
    matches!(
        next_header,
        HOP_BY_HOP
            | ROUTING
            | FRAGMENT
            | ESP
            | AUTHENTICATION
            | NO_NEXT
            | DESTINATION
            | 135
            | 139
            | 140
            | 253
            | 254
    )
}

/// Walks from the first next header value through `payload`, the bytes after the IPv6 header.
///
/// Walked: hop-by-hop options in first place, destination options, and the header of an atomic
/// fragment (offset 0, M 0), which is a whole packet (RFC 6946). Options are skipped when their type
/// says so (highest two bits 00) and refuse the packet otherwise.
pub fn walk(mut next_header: u8, payload: &[u8]) -> Walk {
    let mut rest = payload;
    for n in 0..=HEADERS_MAX {
        if !is_extension(next_header) {
            return Walk::Upper {
                next_header,
                offset: payload.len() - rest.len(),
            };
        }
        let Some(&[next, len, b2, b3]) = rest.first_chunk() else {
            return Walk::Refused;
        };
        let units = match next_header {
            HOP_BY_HOP if n == 0 => 1 + usize::from(len),
            DESTINATION => 1 + usize::from(len),
            FRAGMENT if u16::from_be_bytes([b2, b3]) & 0xfff9 != 0 => return Walk::Fragment,
            FRAGMENT => 1,
            _ => return Walk::Refused,
        };
        let Some((header, after)) = rest.split_at_checked(units * 8) else {
            return Walk::Refused;
        };
        if next_header != FRAGMENT && !options_are_skippable(header) {
            return Walk::Refused;
        }
        (next_header, rest) = (next, after);
    }
    Walk::Refused
}

fn options_are_skippable(header: &[u8]) -> bool {
    let mut options = header.get(2..).unwrap_or_default();
    for _ in 0..=OPTIONS_MAX {
        options = match *options {
            [] => return true,
            // Pad1.
            [0, ref rest @ ..] => rest,
            [kind, len, ref rest @ ..] if kind & 0xc0 == 0 => match rest.get(usize::from(len)..) {
                Some(rest) => rest,
                None => return false,
            },
            _ => return false,
        };
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const UDP: u8 = 17;
    /// Eight bytes of options: a PadN of six bytes in all.
    const fn padded(next: u8) -> [u8; 8] {
        [next, 0, 1, 4, 0, 0, 0, 0]
    }

    #[test]
    fn no_extension_is_the_upper_layer_at_once() {
        assert_eq!(
            walk(UDP, &[1, 2, 3]),
            Walk::Upper {
                next_header: UDP,
                offset: 0
            }
        );
    }

    #[test]
    fn options_headers_are_walked_in_order() {
        let payload = [padded(DESTINATION), padded(UDP), [9; 8]].concat();
        assert_eq!(
            walk(HOP_BY_HOP, &payload),
            Walk::Upper {
                next_header: UDP,
                offset: 16
            }
        );
        // Router alert (5) may be skipped.
        let alert = [UDP, 0, 5, 2, 0, 0, 1, 0];
        assert_eq!(
            walk(HOP_BY_HOP, &alert),
            Walk::Upper {
                next_header: UDP,
                offset: 8
            }
        );
    }

    #[test]
    fn hop_by_hop_is_refused_in_any_other_place() {
        let payload = [padded(HOP_BY_HOP), padded(UDP)].concat();
        assert_eq!(walk(DESTINATION, &payload), Walk::Refused);
    }

    #[test]
    fn only_an_atomic_fragment_is_walked() {
        let atomic = [UDP, 0, 0, 0, 1, 2, 3, 4];
        assert_eq!(
            walk(FRAGMENT, &atomic),
            Walk::Upper {
                next_header: UDP,
                offset: 8
            }
        );
        assert_eq!(walk(FRAGMENT, &[UDP, 0, 0, 1, 1, 2, 3, 4]), Walk::Fragment);
        assert_eq!(walk(FRAGMENT, &[UDP, 0, 0, 8, 1, 2, 3, 4]), Walk::Fragment);
    }

    #[test]
    fn other_headers_are_refused() {
        for kind in [ROUTING, ESP, AUTHENTICATION, NO_NEXT, 135, 139, 140, 253, 254] {
            assert_eq!(walk(kind, &padded(UDP)), Walk::Refused, "{kind}");
        }
    }

    #[test]
    fn the_bounds_hold() {
        let four = [
            padded(DESTINATION),
            padded(DESTINATION),
            padded(DESTINATION),
            padded(UDP),
        ]
        .concat();
        assert_eq!(
            walk(DESTINATION, &four),
            Walk::Upper {
                next_header: UDP,
                offset: 32
            }
        );
        let five = [&padded(DESTINATION)[..], &four].concat();
        assert_eq!(walk(DESTINATION, &five), Walk::Refused);
        // Nine options; a header past the end; an option past its header; one that must be discarded.
        let nine = [UDP, 1, 0, 0, 0, 0, 0, 0, 0, 0, 1, 4, 0, 0, 0, 0];
        assert_eq!(walk(DESTINATION, &nine), Walk::Refused);
        assert_eq!(walk(DESTINATION, &[UDP, 1, 1, 4, 0, 0, 0, 0]), Walk::Refused);
        assert_eq!(walk(DESTINATION, &[UDP, 0, 1, 5, 0, 0, 0, 0]), Walk::Refused);
        assert_eq!(walk(DESTINATION, &[UDP, 0, 0xc2, 4, 0, 0, 0, 0]), Walk::Refused);
    }

    proptest! {
        #[test]
        fn any_bytes_end_the_walk_inside_the_payload(
            first in prop_oneof![Just(HOP_BY_HOP), Just(FRAGMENT), Just(DESTINATION), any::<u8>()],
            bytes in proptest::collection::vec(prop_oneof![Just(0u8), Just(DESTINATION), Just(1u8), any::<u8>()], 0..200),
        ) {
            if let Walk::Upper { next_header, offset } = walk(first, &bytes) {
                prop_assert!(offset <= bytes.len() && offset % 8 == 0 && !is_extension(next_header));
            }
        }
    }
}
