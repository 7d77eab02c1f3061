//! The test vectors of RFC 9018 appendix A, the hash against another implementation, and the times.

use super::*;
use proptest::prelude::*;
use siphasher::sip::SipHasher24;
use std::hash::Hasher;

/// Bytes of a hexadecimal text.
fn hex<const N: usize>(text: &str) -> [u8; N] {
    let digits: Vec<u8> = text.chars().map(|c| c.to_digit(16).unwrap() as u8).collect();
    let bytes: Vec<u8> = digits.chunks(2).map(|two| two[0] << 4 | two[1]).collect();
    bytes.try_into().unwrap()
}

fn secrets(current: &str, other: Option<&str>) -> Secrets {
    Secrets {
        current: Secret::new(hex(current)),
        other: other.map(|text| Secret::new(hex(text))),
    }
}

const A_SECRET: &str = "e5e973e5a6b2a43f48e7dc849e37bfcf";
const A_CLIENT: Address = Address::V4([198, 51, 100, 100]);

#[test]
fn a_1_a_new_server_cookie() {
    let made = secrets(A_SECRET, None).make(hex("2464c4abcf10c957"), A_CLIENT, 1_559_731_985);
    assert_eq!(
        made,
        hex::<24>("2464c4abcf10c957010000005cf79f111f8130c3eee29480")
    );
}

#[test]
fn a_2_the_same_client_renews_after_40_minutes() {
    let (secrets, now) = (secrets(A_SECRET, None), 1_559_734_385);
    let learned = hex("2464c4abcf10c957010000005cf79f111f8130c3eee29480");
    assert_eq!(secrets.judge(&learned, A_CLIENT, now), Judged::Renew);
    assert_eq!(
        secrets.make(hex("2464c4abcf10c957"), A_CLIENT, now),
        hex::<24>("2464c4abcf10c957010000005cf7a871d4a564a1442aca77")
    );
}

#[test]
fn a_3_another_client_with_reserved_bits_set() {
    let (secrets, client) = (secrets(A_SECRET, None), Address::V4([203, 0, 113, 203]));
    let learned = hex("fc93fc62807ddb8601abcdef5cf78f71a314227b6679ebf5");
    // Reserved bits are hashed as they came; the answer has none, so even a young cookie is renewed.
    assert_eq!(secrets.judge(&learned, client, 1_559_727_985), Judged::Renew);
    // The RFC's example answers after an hour and 52 minutes: beyond the hour that it recommends.
    let now = 1_559_734_700;
    assert_eq!(secrets.judge(&learned, client, now), Judged::Bad);
    assert_eq!(
        secrets.make(hex("fc93fc62807ddb86"), client, now),
        hex::<24>("fc93fc62807ddb86010000005cf7a9acf73a7810aca2381e")
    );
}

#[test]
fn a_4_ipv6_and_a_secret_rolled_over() {
    let client = Address::V6([
        0x20, 1, 0x0d, 0xb8, 2, 0x20, 0, 1, 0x59, 0xde, 0xd0, 0xf4, 0x87, 0x69, 0x82, 0xb8,
    ]);
    let (old, new) = (
        "dd3bdf9344b678b185a6f5cb60fca715",
        "445536bcd2513298075a5d379663c962",
    );
    let learned = hex("22681ab97d52c298010000005cf7c57926556bd0934c72f8");
    let now = 1_559_741_961;
    assert_eq!(secrets(old, None).judge(&learned, client, now), Judged::Good);
    assert_eq!(
        secrets(new, Some(old)).judge(&learned, client, now),
        Judged::Renew
    );
    assert_eq!(secrets(new, None).judge(&learned, client, now), Judged::Bad);
    assert_eq!(
        secrets(new, Some(old)).make(hex("22681ab97d52c298"), client, now),
        hex::<24>("22681ab97d52c298010000005cf7c609a6bb79d16625507a")
    );
}

#[test]
fn a_cookie_is_good_for_half_an_hour_renewed_for_another_and_may_come_five_minutes_early() {
    let secrets = secrets(A_SECRET, None);
    // Also across the year 2106, where 32 bits of seconds end.
    for made in [1_559_731_985u32, 100, u32::MAX - 100] {
        let cookie = secrets.make([7; 8], A_CLIENT, made);
        for (age, want) in [
            (0, Judged::Good),
            (1800, Judged::Good),
            (1801, Judged::Renew),
            (3600, Judged::Renew),
            (3601, Judged::Bad),
            (-1, Judged::Good),
            (-300, Judged::Good),
            (-301, Judged::Bad),
            (i32::MIN, Judged::Bad),
        ] {
            let now = made.wrapping_add_signed(age);
            assert_eq!(secrets.judge(&cookie, A_CLIENT, now), want, "{made} {age}");
        }
    }
}

#[test]
fn another_version_is_not_ours() {
    let secrets = secrets(A_SECRET, None);
    let mut cookie = secrets.make([7; 8], A_CLIENT, 1000);
    // Even with a hash that fits.
    cookie[8] = 2;
    let head = u64::from_le_bytes(cookie[8..16].try_into().unwrap());
    let hash = sip(secrets.current, u64::from_le_bytes([7; 8]), head, A_CLIENT);
    cookie[16..].copy_from_slice(&hash.to_le_bytes());
    assert_eq!(secrets.judge(&cookie, A_CLIENT, 1000), Judged::Bad);
}

#[test]
fn a_secret_does_not_show() {
    let shown = format!("{:?}", secrets(A_SECRET, Some(A_SECRET)));
    assert_eq!(
        shown,
        "Secrets { current: Secret(not shown), other: Some(Secret(not shown)) }"
    );
}

fn any_address() -> impl Strategy<Value = Address> {
    prop_oneof![
        any::<[u8; 4]>().prop_map(Address::V4),
        any::<[u8; 16]>().prop_map(Address::V6)
    ]
}

proptest! {
    #[test]
    fn the_hash_is_siphash_2_4(key: [u8; 16], client: [u8; 8], now: u32, address in any_address()) {
        let made = Secrets { current: Secret::new(key), other: None }.make(client, address, now);
        let mut input = made[..16].to_vec();
        match address {
            Address::V4(a) => input.extend(a),
            Address::V6(a) => input.extend(a),
        }
        let mut hasher = SipHasher24::new_with_key(&key);
        hasher.write(&input);
        prop_assert_eq!(&made[16..], hasher.finish().to_le_bytes());
        prop_assert_eq!(&made[..8], client);
        prop_assert_eq!(&made[8..12], [1, 0, 0, 0]);
        prop_assert_eq!(&made[12..16], now.to_be_bytes());
    }

    #[test]
    fn any_change_makes_it_bad(key: [u8; 16], client: [u8; 8], now: u32, address in any_address(),
            other in any_address(), bit in 0usize..192) {
        let secrets = Secrets { current: Secret::new(key), other: None };
        let cookie = secrets.make(client, address, now);
        prop_assert_eq!(secrets.judge(&cookie, address, now), Judged::Good);
        let mut changed = cookie;
        changed[bit / 8] ^= 1 << (bit % 8);
        prop_assert_eq!(secrets.judge(&changed, address, now), Judged::Bad);
        prop_assert!(other == address || secrets.judge(&cookie, other, now) == Judged::Bad);
    }
}
