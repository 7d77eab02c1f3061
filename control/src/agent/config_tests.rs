//! The agent's file as its user writes it. Places are counted by hand.

use super::*;
use crate::config::model::CheckKind;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;

const PIN: &str = "00112233445566778899AABBCCDDEEFF:00:11:22:33:44:55:66:77:88:99:aa:bb:cc:dd:ee:ff";

fn load_text(text: &str) -> Result<AgentConfig, Vec<String>> {
    let folder = tempfile::tempdir().expect("a folder");
    for name in ["t", "seoul-kt.token"] {
        let token = folder.path().join(name);
        fs::write(&token, "a-token-of-the-site\n").expect("written");
        fs::set_permissions(&token, Permissions::from_mode(0o600)).expect("set");
    }
    let file = folder.path().join("agent.toml");
    fs::write(&file, text).expect("written");
    match load(&file) {
        Ok((config, warnings)) => {
            assert_eq!(warnings.iter().count(), 0, "{warnings}");
            Ok(config)
        }
        Err(found) => Err(found
            .iter()
            .map(|d| format!("{}:{}: {}", d.line, d.column, d.message))
            .collect()),
    }
}

/// A good file of five lines, and more.
fn good(more: &str) -> String {
    format!(
        "site = \"s\"\ntoken_file = \"t\"\n[[appliance]]\naddress = \"192.0.2.1\"\nfingerprint = \"{PIN}\"\n{more}"
    )
}

#[test]
fn the_shipped_one_says_what_its_comments_say() {
    let text =
        fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../configs/agent.toml")).expect("shipped");
    let config = load_text(&text).expect("good");
    assert_eq!(
        (config.site.as_str(), config.token.0.as_str()),
        ("seoul-kt", "a-token-of-the-site")
    );
    assert_eq!(
        (config.appliances[0].host.as_str(), config.appliances[0].port),
        ("192.0.2.1", 8853)
    );
    let kinds: Vec<bool> = config
        .members
        .iter()
        .map(|member| {
            matches!(
                member.check.as_ref().expect("a check").kind,
                CheckKind::Http { .. }
            )
        })
        .collect();
    assert_eq!(kinds, [true, false]);
    assert_eq!(config.readings.len(), 6);
    assert_eq!(config.readings[0].timeout, Duration::from_secs(2));
    let From::Prometheus {
        host,
        port,
        path,
        rate,
        scale,
        ..
    } = &config.readings[1].from
    else {
        panic!("{:?}", config.readings[1])
    };
    assert_eq!(
        (host.as_str(), *port, path.as_str(), *rate, *scale),
        ("127.0.0.1", 8404, "/metrics", true, 8.0)
    );
    assert_eq!(config.rtt, Rtt::default());
    assert!(!format!("{config:?}").contains("a-token"));
}

#[test]
fn hosts_ports_and_fingerprints_are_read() {
    let config = load_text(&good("")).expect("good");
    let mut pin = [0; 32];
    for (at, byte) in pin.iter_mut().enumerate() {
        *byte = (at as u8 % 16) * 0x11;
    }
    assert_eq!(config.appliances[0].trust, Trust::Fingerprint(pin));
    let cases = [
        ("192.0.2.1", Some(("192.0.2.1", 8853))),
        ("192.0.2.1:443", Some(("192.0.2.1", 443))),
        ("2001:db8::1", Some(("2001:db8::1", 8853))),
        ("[2001:db8::1]:443", Some(("2001:db8::1", 443))),
        ("edge-1.example.com", Some(("edge-1.example.com", 8853))),
        ("edge-1.example.com:1", Some(("edge-1.example.com", 1))),
        ("edge:0", None),
        ("edge:99999", None),
        ("a b", None),
        (":8853", None),
    ];
    for (text, expected) in cases {
        let expected = expected.map(|(host, port)| (host.to_owned(), port));
        assert_eq!(host_and_port(text), expected, "{text}");
    }
}

#[test]
fn what_is_wrong_has_its_place() {
    let cases = [
        (
            "site = \"s\"\ntoken_file = \"t\"\n".to_owned(),
            "1:1: there is no [[appliance]]",
        ),
        (good("").replace("site", "sight"), "1:1: unknown key `sight`"),
        (
            good("").replace("fingerprint = ", "server_name = "),
            "3:1: [[appliance]] has neither",
        ),
        (
            good("").replace("0011", "001"),
            "5:15: `fingerprint` is the SHA-256",
        ),
        (good("ca = \"x\"\n"), "5:15: either `fingerprint` or `ca`"),
        (
            good("server_name = \"x\"\n"),
            "6:15: `server_name` goes with `ca`",
        ),
        (
            good("").replace("192.0.2.1", "192.0.2.1:x"),
            "4:11: `192.0.2.1:x` is not a host",
        ),
        (
            good("[[member]]\naddress = \"192.0.2.9\"\n[[member]]\naddress = \"192.0.2.9\"\n"),
            "9:11: member 192.0.2.9 is there twice",
        ),
        (
            good("[[reading]]\nfrom = \"commands\"\n"),
            "7:8: `from` cannot be \"commands\"",
        ),
        (
            good("[[reading]]\nfrom = \"command\"\n"),
            "6:1: [[reading]] has no `command`",
        ),
        (
            good("[[reading]]\nfrom = \"command\"\ncommand = []\n"),
            "8:11: `command` is empty",
        ),
        (
            good("[[reading]]\nfrom = \"tcp\"\nmetric = \"x\"\n"),
            "8:1: unknown key `metric`",
        ),
        (
            good(
                "[[reading]]\nfrom = \"prometheus\"\nurl = \"https://x/\"\nmetric = \"m\"\ngives = \"sessions\"\n",
            ),
            "8:7: `https://x/` is not http://HOST:PORT/PATH",
        ),
        (
            good("[rtt]\ntimeout = \"2s\"\n"),
            "7:11: `timeout` must be from 10ms to 990ms",
        ),
    ];
    for (text, expected) in cases {
        let found = load_text(&text).expect_err(expected);
        assert!(
            found.iter().any(|line| line.starts_with(expected)),
            "{expected}\n{found:#?}"
        );
    }
}
