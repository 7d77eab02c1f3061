//! `windrose check` as a process: exit codes, and what goes to which stream.

use std::path::Path;
use std::process::{Command, Output};

fn check(arguments: &[&str]) -> Output {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    Command::new(env!("CARGO_BIN_EXE_windrose"))
        .current_dir(folder)
        .arg("check")
        .args(arguments)
        .output()
        .expect("windrose runs")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("UTF-8")
}

#[test]
fn a_good_configuration_is_summed_up_on_one_screen() {
    let output = check(&["configs/example.toml"]);
    assert_eq!(
        (output.status.code(), text(&output.stderr).as_str()),
        (Some(0), "")
    );
    let summary = text(&output.stdout);
    assert!(summary.lines().count() <= 30, "{summary}");
    for part in [
        "wan 0000:3b:00.0 answers on 192.0.2.53, 2001:db8::53",
        "example.com 27 records in 26 sets",
        "vod.example.com 5 members, http check on port 8080 every 1s",
        "9 members, 8 of them checked",
        "example-asn.csv 3 rows",
        "KT 1 autonomous system, 1 prefixes",
        "peers 3 prefixes",
        // Nothing known; KT alone; the office; KT in KR; SKB in KR; KR (198.18.0.0/15 before its halves); HK; SKB somewhere in
        // Asia; JP.
        "classes   9 by 11 prefixes",
    ] {
        assert!(summary.contains(part), "no `{part}` in\n{summary}");
    }
}

#[test]
fn a_wrong_one_exits_with_2_and_says_nothing_on_standard_output() {
    let output = check(&["Cargo.toml"]);
    assert_eq!(
        (output.status.code(), text(&output.stdout).as_str()),
        (Some(2), "")
    );
    let errors = text(&output.stderr);
    assert!(
        errors.contains("Cargo.toml:1:2: error: unknown key `workspace` in the file"),
        "{errors}"
    );
}

#[test]
fn json_holds_the_same_for_programs() {
    let parsed = |output: &Output| serde_json::from_slice::<serde_json::Value>(&output.stdout).expect("JSON");
    let output = check(&["--json", "configs/example.toml"]);
    assert_eq!(output.status.code(), Some(0));
    let value = parsed(&output);
    assert_eq!(value["valid"], true);
    assert_eq!(value["zones"][0]["records"], 27);
    assert_eq!(value["services"][0]["members"], 5);

    let output = check(&["--json", "Cargo.toml"]);
    assert_eq!(
        (output.status.code(), text(&output.stderr).as_str()),
        (Some(2), "")
    );
    let value = parsed(&output);
    assert_eq!(value["valid"], false);
    let finding = &value["findings"][0];
    assert_eq!(
        (finding["severity"].as_str(), finding["file"].as_str()),
        (Some("error"), Some("Cargo.toml"))
    );
    assert!(finding["line"].is_u64() && finding["column"].is_u64() && finding["message"].is_string());
}
