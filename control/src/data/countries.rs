//! Countries: the continent and about the middle of each. Looked up by what loads and lays over client data.
//!
//! The codes are those of ISO 3166-1 (2024), and XK, which databases use for Kosovo. The middle is the centroid of
//! the country's largest piece of land in Natural Earth 4.1, "Admin 0 countries", 1:10 million, rounded to a tenth of a
//! degree; Natural Earth is in the public domain. Twelve that it has no shape of their own for (BQ, BV, CC, CX, GF,
//! GP, MQ, RE, SJ, TK, VA, YT) are placed by hand. Where a country reaches over two continents it has the one that
//! databases give it: CY, RU in Europe; TR, KZ, the Caucasus in Asia; EG in Africa. A database that names the continent or
//! the location itself is believed over this.

use crate::policy::chain::facts::{Continent, Country, Location};
use Continent::{Africa, Antarctica, Asia, Europe, NorthAmerica, Oceania, SouthAmerica};

/// What is known of a country by its code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Known {
    /// Its continent.
    pub continent: Continent,
    /// About its middle.
    pub middle: Location,
}

/// The country's continent and middle; `None` for a code that is no country's.
pub fn find(country: Country) -> Option<Known> {
    let at = COUNTRIES.binary_search_by_key(&country.0, |row| *row.0).ok()?;
    let &(_, continent, latitude, longitude) = COUNTRIES.get(at)?;
    // The table has tenths of a degree.
    let middle = Location {
        latitude: i32::from(latitude) * 1000,
        longitude: i32::from(longitude) * 1000,
    };
    Some(Known { continent, middle })
}

/// A country by its code, in either case.
///
/// # Errors
/// What is wrong with the text, in one line.
pub fn country(text: &str) -> Result<Country, String> {
    let code = <[u8; 2]>::try_from(text.as_bytes()).map(|code| Country(code.map(|c| c.to_ascii_uppercase())));
    match code {
        Ok(code) if find(code).is_some() => Ok(code),
        _ => Err(format!(
            "`{text}` is not a country: write its ISO 3166-1 code of two letters, such as KR"
        )),
    }
}

/// Continents by their codes in databases and by their names in configurations.
pub const CONTINENTS: [(&str, &str, Continent); 7] = [
    ("AF", "africa", Africa),
    ("AN", "antarctica", Antarctica),
    ("AS", "asia", Asia),
    ("EU", "europe", Europe),
    ("NA", "north-america", NorthAmerica),
    ("OC", "oceania", Oceania),
    ("SA", "south-america", SouthAmerica),
];

/// The name of a continent in configurations.
pub fn name(continent: Continent) -> &'static str {
    let row = CONTINENTS.iter().find(|(_, _, c)| *c == continent);
    row.map_or("", |(_, name, _)| name)
}

/// A continent by its code or its name, in either case.
///
/// # Errors
/// What is wrong with the text, in one line.
pub fn continent(text: &str) -> Result<Continent, String> {
    let found = CONTINENTS
        .iter()
        .find(|(code, name, _)| text.eq_ignore_ascii_case(code) || text.eq_ignore_ascii_case(name));
    found.map(|(_, _, continent)| *continent).ok_or_else(|| {
        let all = CONTINENTS.map(|(code, name, _)| format!("{code} ({name})"));
        format!("`{text}` is not a continent: write {}", all.join(", "))
    })
}

/// Code, continent, latitude and longitude in tenths of a degree; by code.
#[rustfmt::skip]
const COUNTRIES: [(&[u8; 2], Continent, i16, i16); 250] = [
    (b"AD", Europe, 425, 16), (b"AE", Asia, 239, 543), (b"AF", Asia, 338, 660),
    (b"AG", NorthAmerica, 171, -618), (b"AI", NorthAmerica, 182, -631), (b"AL", Europe, 411, 201),
    (b"AM", Asia, 403, 449), (b"AO", Africa, -123, 176), (b"AQ", Antarctica, -772, 315),
    (b"AR", SouthAmerica, -352, -652), (b"AS", Oceania, -143, -1707), (b"AT", Europe, 476, 141),
    (b"AU", Oceania, -256, 1344), (b"AW", NorthAmerica, 125, -700), (b"AX", Europe, 602, 199),
    (b"AZ", Asia, 403, 477), (b"BA", Europe, 442, 178), (b"BB", NorthAmerica, 132, -596),
    (b"BD", Asia, 239, 902), (b"BE", Europe, 506, 46), (b"BF", Africa, 123, -18),
    (b"BG", Europe, 428, 252), (b"BH", Asia, 261, 505), (b"BI", Africa, -34, 299),
    (b"BJ", Africa, 96, 23), (b"BL", NorthAmerica, 179, -628), (b"BM", NorthAmerica, 323, -648),
    (b"BN", Asia, 45, 1146), (b"BO", SouthAmerica, -167, -647), (b"BQ", NorthAmerica, 122, -683),
    (b"BR", SouthAmerica, -108, -531), (b"BS", NorthAmerica, 247, -780), (b"BT", Asia, 274, 904),
    (b"BV", Antarctica, -544, 34), (b"BW", Africa, -222, 238), (b"BY", Europe, 535, 280),
    (b"BZ", NorthAmerica, 172, -887), (b"CA", NorthAmerica, 579, -1024), (b"CC", Asia, -122, 968),
    (b"CD", Africa, -29, 236), (b"CF", Africa, 66, 205), (b"CG", Africa, -8, 152),
    (b"CH", Europe, 468, 82), (b"CI", Africa, 76, -56), (b"CK", Oceania, -212, -1598),
    (b"CL", SouthAmerica, -355, -712), (b"CM", Africa, 57, 127), (b"CN", Asia, 366, 1038),
    (b"CO", SouthAmerica, 39, -731), (b"CR", NorthAmerica, 100, -842), (b"CU", NorthAmerica, 216, -790),
    (b"CV", Africa, 151, -236), (b"CW", NorthAmerica, 122, -690), (b"CX", Asia, -105, 1057),
    (b"CY", Europe, 349, 330), (b"CZ", Europe, 497, 153), (b"DE", Europe, 511, 104),
    (b"DJ", Africa, 118, 426), (b"DK", Europe, 562, 94), (b"DM", NorthAmerica, 154, -614),
    (b"DO", NorthAmerica, 189, -705), (b"DZ", Africa, 281, 27), (b"EC", SouthAmerica, -14, -784),
    (b"EE", Europe, 587, 258), (b"EG", Africa, 265, 299), (b"EH", Africa, 242, -122),
    (b"ER", Africa, 154, 388), (b"ES", Europe, 404, -36), (b"ET", Africa, 86, 396),
    (b"FI", Europe, 645, 263), (b"FJ", Oceania, -178, 1780), (b"FK", SouthAmerica, -517, -588),
    (b"FM", Oceania, 69, 1582), (b"FO", Europe, 621, -70), (b"FR", Europe, 466, 25),
    (b"GA", Africa, -6, 118), (b"GB", Europe, 539, -25), (b"GD", NorthAmerica, 121, -617),
    (b"GE", Asia, 422, 435), (b"GF", SouthAmerica, 39, -531), (b"GG", Europe, 495, -26),
    (b"GH", Africa, 80, -12), (b"GI", Europe, 361, -53), (b"GL", NorthAmerica, 748, -414),
    (b"GM", Africa, 134, -154), (b"GN", Africa, 104, -109), (b"GP", NorthAmerica, 162, -615),
    (b"GQ", Africa, 16, 105), (b"GR", Europe, 395, 226), (b"GS", Antarctica, -544, -367),
    (b"GT", NorthAmerica, 157, -904), (b"GU", Oceania, 134, 1448), (b"GW", Africa, 121, -149),
    (b"GY", SouthAmerica, 48, -590), (b"HK", Asia, 224, 1142), (b"HM", Antarctica, -531, 735),
    (b"HN", NorthAmerica, 148, -866), (b"HR", Europe, 452, 164), (b"HT", NorthAmerica, 189, -727),
    (b"HU", Europe, 472, 194), (b"ID", Asia, -2, 1140), (b"IE", Europe, 532, -81),
    (b"IL", Asia, 314, 350), (b"IM", Europe, 542, -45), (b"IN", Asia, 229, 796),
    (b"IO", Asia, -74, 724), (b"IQ", Asia, 330, 437), (b"IR", Asia, 326, 543),
    (b"IS", Europe, 650, -186), (b"IT", Europe, 435, 122), (b"JE", Europe, 492, -21),
    (b"JM", NorthAmerica, 182, -773), (b"JO", Asia, 312, 368), (b"JP", Asia, 367, 1380),
    (b"KE", Africa, 6, 378), (b"KG", Asia, 415, 745), (b"KH", Asia, 127, 1049),
    (b"KI", Oceania, 18, -1574), (b"KM", Africa, -117, 433), (b"KN", NorthAmerica, 173, -628),
    (b"KP", Asia, 402, 1272), (b"KR", Asia, 365, 1279), (b"KW", Asia, 293, 476),
    (b"KY", NorthAmerica, 193, -813), (b"KZ", Asia, 482, 673), (b"LA", Asia, 185, 1037),
    (b"LB", Asia, 339, 359), (b"LC", NorthAmerica, 139, -610), (b"LI", Europe, 471, 95),
    (b"LK", Asia, 76, 807), (b"LR", Africa, 65, -93), (b"LS", Africa, -296, 282),
    (b"LT", Europe, 553, 239), (b"LU", Europe, 498, 61), (b"LV", Europe, 569, 249),
    (b"LY", Africa, 270, 180), (b"MA", Africa, 298, -84), (b"MC", Europe, 437, 74),
    (b"MD", Europe, 472, 285), (b"ME", Europe, 428, 192), (b"MF", NorthAmerica, 181, -631),
    (b"MG", Africa, -194, 467), (b"MH", Oceania, 71, 1712), (b"MK", Europe, 416, 217),
    (b"ML", Africa, 173, -35), (b"MM", Asia, 212, 965), (b"MN", Asia, 468, 1031),
    (b"MO", Asia, 221, 1136), (b"MP", Oceania, 152, 1457), (b"MQ", NorthAmerica, 146, -610),
    (b"MR", Africa, 203, -103), (b"MS", NorthAmerica, 167, -622), (b"MT", Europe, 359, 144),
    (b"MU", Africa, -203, 576), (b"MV", Asia, 42, 735), (b"MW", Africa, -132, 343),
    (b"MX", NorthAmerica, 239, -1025), (b"MY", Asia, 36, 1147), (b"MZ", Africa, -173, 355),
    (b"NA", Africa, -221, 172), (b"NC", Oceania, -213, 1655), (b"NE", Africa, 174, 94),
    (b"NF", Oceania, -290, 1680), (b"NG", Africa, 96, 81), (b"NI", NorthAmerica, 128, -850),
    (b"NL", Europe, 523, 56), (b"NO", Europe, 642, 140), (b"NP", Asia, 282, 839),
    (b"NR", Oceania, -5, 1669), (b"NU", Oceania, -190, -1699), (b"NZ", Oceania, -440, 1705),
    (b"OM", Asia, 206, 561), (b"PA", NorthAmerica, 85, -801), (b"PE", SouthAmerica, -92, -744),
    (b"PF", Oceania, -177, -1494), (b"PG", Oceania, -66, 1442), (b"PH", Asia, 160, 1214),
    (b"PK", Asia, 299, 693), (b"PL", Europe, 521, 194), (b"PM", NorthAmerica, 470, -563),
    (b"PN", Oceania, -244, -1283), (b"PR", NorthAmerica, 182, -665), (b"PS", Asia, 319, 352),
    (b"PT", Europe, 397, -80), (b"PW", Oceania, 75, 1346), (b"PY", SouthAmerica, -232, -584),
    (b"QA", Asia, 253, 512), (b"RE", Africa, -211, 555), (b"RO", Europe, 459, 250),
    (b"RS", Europe, 442, 208), (b"RU", Europe, 617, 991), (b"RW", Africa, -20, 299),
    (b"SA", Asia, 241, 445), (b"SB", Oceania, -96, 1602), (b"SC", Africa, -47, 555),
    (b"SD", Africa, 160, 299), (b"SE", Europe, 628, 167), (b"SG", Asia, 14, 1038),
    (b"SH", Africa, -160, -57), (b"SI", Europe, 461, 148), (b"SJ", Europe, 788, 160),
    (b"SK", Europe, 487, 195), (b"SL", Africa, 86, -118), (b"SM", Europe, 439, 124),
    (b"SN", Africa, 144, -145), (b"SO", Africa, 47, 457), (b"SR", SouthAmerica, 41, -559),
    (b"SS", Africa, 73, 303), (b"ST", Africa, 2, 66), (b"SV", NorthAmerica, 137, -889),
    (b"SX", NorthAmerica, 180, -631), (b"SY", Asia, 350, 385), (b"SZ", Africa, -266, 315),
    (b"TC", NorthAmerica, 218, -717), (b"TD", Africa, 153, 186), (b"TF", Antarctica, -493, 695),
    (b"TG", Africa, 85, 10), (b"TH", Asia, 151, 1010), (b"TJ", Asia, 385, 710),
    (b"TK", Oceania, -92, -1718), (b"TL", Oceania, -88, 1259), (b"TM", Asia, 391, 594),
    (b"TN", Africa, 341, 95), (b"TO", Oceania, -212, -1752), (b"TR", Asia, 390, 354),
    (b"TT", NorthAmerica, 104, -613), (b"TV", Oceania, -85, 1792), (b"TW", Asia, 238, 1210),
    (b"TZ", Africa, -63, 348), (b"UA", Europe, 492, 313), (b"UG", Africa, 13, 324),
    (b"UM", Oceania, 59, -1621), (b"US", NorthAmerica, 395, -991), (b"UY", SouthAmerica, -328, -560),
    (b"UZ", Asia, 418, 631), (b"VA", Europe, 419, 125), (b"VC", NorthAmerica, 133, -612),
    (b"VE", SouthAmerica, 71, -662), (b"VG", NorthAmerica, 184, -646), (b"VI", NorthAmerica, 177, -648),
    (b"VN", Asia, 167, 1063), (b"VU", Oceania, -152, 1669), (b"WF", Oceania, -133, -1762),
    (b"WS", Oceania, -136, -1724), (b"XK", Europe, 426, 209), (b"YE", Asia, 159, 475),
    (b"YT", Africa, -128, 451), (b"ZA", Africa, -290, 251), (b"ZM", Africa, -135, 278),
    (b"ZW", Africa, -190, 299),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_country_once_and_on_the_globe() {
        assert!(COUNTRIES.is_sorted_by(|a, b| a.0 < b.0));
        for (code, _, latitude, longitude) in COUNTRIES {
            assert!(code.iter().all(u8::is_ascii_uppercase));
            assert!(latitude.abs() <= 900 && longitude.abs() <= 1800, "{code:?}");
        }
    }

    /// Places that an atlas gives: within two degrees of the geographic centre, on the right continent.
    #[test]
    fn some_of_an_atlas() {
        for (code, continent, latitude, longitude) in [
            ("KR", Asia, 36.4, 127.9),
            ("us", NorthAmerica, 39.8, -98.6),
            ("RU", Europe, 61.5, 100.0),
            ("HK", Asia, 22.4, 114.1),
            ("BR", SouthAmerica, -10.6, -52.9),
            ("ZA", Africa, -29.0, 25.1),
            ("FR", Europe, 46.6, 2.4),
            ("NZ", Oceania, -43.5, 170.5),
            ("RE", Africa, -21.1, 55.5),
        ] {
            let known = find(country(code).unwrap()).unwrap();
            assert_eq!(known.continent, continent, "{code}");
            let near = |have: i32, want: f64| (f64::from(have) / 1e4 - want).abs() < 2.0;
            assert!(
                near(known.middle.latitude, latitude) && near(known.middle.longitude, longitude),
                "{code}: {known:?}"
            );
        }
    }

    #[test]
    fn texts() {
        assert_eq!(country("kr").unwrap(), Country(*b"KR"));
        for wrong in ["", "K", "KOR", "ZZ", "EU", "é"] {
            assert!(country(wrong).unwrap_err().contains("ISO 3166"), "{wrong}");
        }
        assert_eq!(continent("as").unwrap(), Asia);
        assert_eq!(continent("North-America").unwrap(), NorthAmerica);
        assert!(continent("AM").unwrap_err().contains("NA (north-america)"));
    }
}
