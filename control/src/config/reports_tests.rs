//! `[reports]`, tokens and the rule for silence, from files as a user writes them. Places are counted by hand.

use super::super::load_with_warnings;
use super::super::model::{Config, OnSilence, Reports};
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

/// 14 lines, of which the last ends the only site.
const BASE: &str = r#"appliance.state = "/nonexistent"
dataplane.cores = [1]
[[port]]
name = "wan"
device = "net_null0"
addresses = ["192.0.2.53"]
[[zone]]
name = "example.com"
file = "z"
[[service]]
name = "vod.example.com"
member = [ { address = "203.0.113.1", site = "a" } ]
[[site]]
name = "a"
"#;
const ZONE: &str = "$TTL 300\n@ SOA ns1 host 1 3600 900 604800 300\n@ NS ns1\nns1 A 192.0.2.53\n";
const TOKEN: &str = "cG9saXRlIHRva2Vu";

/// What loading `BASE` and `more` gives, with a token file `t`; findings as `LINE:COLUMN: message (help)`.
fn load(more: &str, token: &str) -> (Option<Config>, Vec<String>) {
    load_text(BASE, more, token)
}

fn load_text(base: &str, more: &str, token: &str) -> (Option<Config>, Vec<String>) {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("windrose.toml");
    fs::write(&file, format!("{base}{more}")).expect("written");
    fs::write(folder.path().join("z"), ZONE).expect("written");
    let secret = folder.path().join("t");
    fs::write(&secret, token).expect("written");
    fs::set_permissions(&secret, Permissions::from_mode(0o600)).expect("set");
    let (config, found) = match load_with_warnings(&file) {
        Ok((config, found)) => (Some(config), found),
        Err(found) => (None, found),
    };
    let show = |d: &crate::config::Diagnostic| {
        format!(
            "{}:{}: {} ({})",
            d.line,
            d.column,
            d.message,
            d.help.clone().unwrap_or_default()
        )
    };
    let found = found.iter().map(show).collect();
    (config, found)
}

fn reports(more: &str) -> Reports {
    let more = format!("token_file = \"t\"\n[reports]\nlisten = \"192.0.2.1:8853\"\n{more}");
    let (config, found) = load(&more, TOKEN);
    assert_eq!(found, [""; 0]);
    config.and_then(|config| config.reports).expect("reports")
}

#[test]
fn defaults_follow_the_interval() {
    let usual = reports("");
    assert_eq!(usual.listen, "192.0.2.1:8853".parse().expect("an address"));
    assert_eq!((usual.interval.as_secs(), usual.silent_after.as_secs()), (5, 20));
    assert_eq!(
        (usual.rtt_every.as_secs(), usual.rtt_max_age.as_secs()),
        (60, 600)
    );
    assert_eq!(
        (usual.rtt_prefixes, usual.rtt_prefix_v4, usual.rtt_prefix_v6),
        (4096, 24, 48)
    );
    let quick = reports("interval = \"500ms\"\nrtt_every = \"10s\"\nmeasure = [\"198.51.100.7/32\"]\n");
    assert_eq!(quick.silent_after, Duration::from_secs(2));
    assert_eq!(quick.rtt_max_age.as_secs(), 100);
    assert_eq!(quick.measure, ["198.51.100.7/32".parse().expect("a prefix")]);
}

#[test]
fn tokens_are_read_and_never_shown() {
    let rest = "token_file = \"t\"\non_silence = \"avoid\"\n[reports]\nlisten = \"192.0.2.1:8853\"\n";
    let (config, found) = load(rest, &format!("# of site a\n{TOKEN}\n\nthe-one-to-come-next\n"));
    assert_eq!(found, [""; 0]);
    let site = &config.expect("taken").sites[0];
    let tokens: Vec<&str> = site.tokens.iter().map(|token| token.0.as_str()).collect();
    assert_eq!(tokens, [TOKEN, "the-one-to-come-next"]);
    assert_eq!(site.on_silence, OnSilence::Avoid);
    assert!(!format!("{site:?}").contains(TOKEN));
    for (text, part) in [
        ("", "there is no token"),
        ("short", ":1: a token has 16 or more"),
        ("a\nb\n", ":1: a token has 16"),
        (&format!("{TOKEN}\nwith a blank in it!\n"), ":2: a token has 16"),
        (&format!("{TOKEN}1\n{TOKEN}2\n{TOKEN}3\n"), "there are 3 tokens"),
    ] {
        let (config, found) = load(rest, text);
        assert!(config.is_none() && found.len() == 1, "{text:?}: {found:?}");
        assert!(
            found[0].starts_with("15:14: ") && found[0].contains(part),
            "{found:?}"
        );
        assert!(
            !found[0].contains(TOKEN) && !found[0].contains("blank"),
            "{found:?}"
        );
    }
}

#[test]
fn what_is_wrong_has_its_place() {
    let cases = [
        ("[reports]\n", "15:1: [reports] has no `listen`"),
        ("state = 1\n", "15:1: unknown key `state`"),
        (
            "[reports]\nlisten = \"8853\"\n",
            "16:10: `8853` is not ADDRESS:PORT",
        ),
        (
            "[reports]\nlisten = \"192.0.2.1:1\"\nsilent_after = \"9s\"\n",
            "17:16: `silent_after` is 9s, less than two intervals of 5s",
        ),
        (
            "[reports]\nlisten = \"192.0.2.1:1\"\nrtt_max_age = \"60s\"\n",
            "17:15: `rtt_max_age` is 60s",
        ),
        (
            "[reports]\nlisten = \"192.0.2.1:1\"\nkey = \"k\"\n",
            "17:7: `certificate` and `key` go together",
        ),
        (
            "[reports]\nlisten = \"192.0.2.1:1\"\nrtt_prefixes = 1\nmeasure = [\"192.0.2.0/24\", \"198.51.100.0/24\"]\n",
            "18:11: `measure` names 2 prefixes, more than `rtt_prefixes` (1)",
        ),
        (
            "on_silence = \"avoi\"\n",
            "15:14: `on_silence` cannot be \"avoi\"",
        ),
        ("token_file = \"nowhere\"\n", "15:14: cannot read the token in"),
        (
            "token_file = \"t\"\n[[site]]\nname = \"b\"\ntoken_file = \"t\"\n[reports]\nlisten = \"192.0.2.1:1\"\n",
            "18:14: sites `a` and `b` have the same token",
        ),
    ];
    for (more, expected) in cases {
        let (config, found) = load(more, TOKEN);
        assert!(config.is_none(), "taken: {more}");
        assert!(
            found.iter().any(|text| text.starts_with(expected)),
            "{expected}\n{found:#?}"
        );
    }
}

#[test]
fn what_has_no_effect_is_warned_of() {
    let (config, found) = load("token_file = \"t\"\n", TOKEN);
    assert!(config.is_some());
    assert!(
        found[0].starts_with("15:14: site `a` has a token and there is no [reports]"),
        "{found:?}"
    );
    let (config, found) = load("[reports]\nlisten = \"192.0.2.1:8853\"\n", TOKEN);
    assert!(config.is_some());
    assert!(found[0].contains("no [[site]] has a `token_file`"), "{found:?}");
}

#[test]
fn a_self_made_certificate_needs_a_folder() {
    let (config, found) = load("token_file = \"t\"\n[reports]\nlisten = \"192.0.2.1:1\"\n", TOKEN);
    assert!(config.is_some(), "{found:?}");
    let given = "certificate = \"c\"\nkey = \"k\"\n";
    for (more, taken) in [("", false), (given, true)] {
        let text = format!("token_file = \"t\"\n[reports]\nlisten = \"192.0.2.1:1\"\n{more}");
        let (config, found) = load_text(
            &BASE.replacen("appliance.state", "appliance.name", 1),
            &text,
            TOKEN,
        );
        assert_eq!(config.is_some(), taken, "{found:?}");
        assert!(
            taken || found[0].starts_with("16:1: [reports] has no certificate"),
            "{found:?}"
        );
    }
}
