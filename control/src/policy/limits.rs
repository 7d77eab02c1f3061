//! Compiles `[dns]`: how replies are shaped, which cookies are known, who is limited. Called by the compiler.

use crate::config::model::{CookieMode, Dns, RateLimit};
use anyhow::Result;
use dataplane::stages::rate_limit::Rules;
use dataplane::tables::prefixes::Prefixes;
use dataplane::tables::{Cookies, Limits};
use dataplane::wire::cookie::{Secret, Secrets};
use ipnet::IpNet;

/// The limits that workers go by. A secret that has to be generated is kept in `generated`, so that reloads
/// do not turn every client's cookie bad.
pub(super) fn limits(dns: &Dns, generated: &mut Option<Secret>) -> Result<Limits> {
    let bytes = |text: &Option<String>| text.clone().unwrap_or_default().into_bytes();
    Ok(Limits {
        udp_size_max: dns.udp_size_max,
        nsid: bytes(&dns.nsid),
        ecs: dns.ecs,
        version: bytes(&dns.version),
        hostname: bytes(&dns.hostname),
        cookies: cookies(dns, generated)?,
        rate_limit: dns.rate_limit.as_ref().map(rules),
    })
}

fn cookies(dns: &Dns, generated: &mut Option<Secret>) -> Result<Option<Cookies>> {
    if dns.cookies.mode == CookieMode::Off {
        return Ok(None);
    }
    let secrets = match (dns.cookies.secrets, *generated) {
        (Some(secrets), _) => secrets,
        (None, Some(current)) => Secrets { current, other: None },
        (None, None) => {
            let mut key = [0; 16];
            getrandom::fill(&mut key).map_err(|e| anyhow::anyhow!("no random bytes from the kernel: {e}"))?;
            let current = Secret::new(key);
            *generated = Some(current);
            Secrets { current, other: None }
        }
    };
    Ok(Some(Cookies {
        secrets,
        require: dns.cookies.mode == CookieMode::Require,
    }))
}

fn rules(config: &RateLimit) -> Rules {
    let v4 = config.allow.iter().filter_map(|prefix| match prefix {
        IpNet::V4(p) => Some((p.network().octets(), p.prefix_len())),
        IpNet::V6(_) => None,
    });
    let v6 = config.allow.iter().filter_map(|prefix| match prefix {
        IpNet::V6(p) => Some((p.network().octets(), p.prefix_len())),
        IpNet::V4(_) => None,
    });
    Rules {
        per_second: config.per_second,
        burst: config.burst,
        slip: config.slip,
        prefix_v4: config.prefix_v4,
        prefix_v6: config.prefix_v6,
        allow: Prefixes::new(v4, v6),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_generated_secret_stays_over_reloads_and_gives_way_to_a_configured_one() {
        let (mut dns, mut generated) = (Dns::default(), None);
        let first = limits(&dns, &mut generated).unwrap().cookies.unwrap();
        let second = limits(&dns, &mut generated).unwrap().cookies.unwrap();
        assert_eq!(first, second);
        assert_ne!(
            first,
            limits(&dns, &mut None).unwrap().cookies.unwrap(),
            "two appliances"
        );
        let configured = Secrets {
            current: Secret::new([7; 16]),
            other: None,
        };
        dns.cookies.secrets = Some(configured);
        let third = limits(&dns, &mut generated).unwrap().cookies.unwrap();
        assert_eq!(third.secrets, configured);
        dns.cookies.mode = CookieMode::Off;
        assert_eq!(limits(&dns, &mut generated).unwrap().cookies, None);
    }
}
