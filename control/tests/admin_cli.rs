//! `windrose status` and `windrose explain` as processes: what they print, and their exit codes.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// A socket that gives each connection the same answer. Its thread ends with the test's process.
fn answer(dir: &Path, status: &'static str, body: &'static str) -> PathBuf {
    let path = dir.join("w.sock");
    let listener = UnixListener::bind(&path).unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let lines = BufReader::new(stream.try_clone().unwrap()).lines();
            lines.map_while(Result::ok).find(|line| line.is_empty());
            let _ = write!(
                stream,
                "HTTP/1.1 {status}\r\nContent-Length: {}\r\n\r\n{body}",
                body.len()
            );
        }
    });
    path
}

fn windrose(args: &[&str], socket: &Path) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_windrose"));
    command.args(args).arg("--socket").arg(socket).output().unwrap()
}

const STATUS: &str = r#"{"appliance":"lab","version":"0.1.0","uptime_s":5,"generation":1,"config_hash":"ab",
    "config_loaded_at":1,"workers":[],"ports":[],"sites":[{"name":"s1","isp":null,"members":2,"members_up":1}],"services":[]}"#;

#[test]
fn a_missing_appliance_is_one_line_and_exit_code_2() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("none.sock");
    for args in [
        &["status"][..],
        &["status", "--json"],
        &["explain", "a.example", "--from", "192.0.2.1"],
    ] {
        let output = windrose(args, &socket);
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(said.lines().count(), 1, "{said}");
        assert!(
            said.contains(socket.to_str().unwrap()) && said.contains("windrose run -c FILE"),
            "{said}"
        );
        assert!(output.stdout.is_empty());
    }
}

#[test]
fn status_prints_tables_or_json() {
    let dir = tempfile::tempdir().unwrap();
    let socket = answer(dir.path(), "200 OK", STATUS);
    let output = windrose(&["status"], &socket);
    assert_eq!(output.status.code(), Some(0));
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(
        said.starts_with("lab (windrose 0.1.0), up 5.0s\n") && said.contains("\ns1    -    1/2 "),
        "{said}"
    );
    let output = windrose(&["status", "--json"], &socket);
    assert_eq!(output.status.code(), Some(0));
    let said: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(said, serde_json::from_str::<serde_json::Value>(STATUS).unwrap());
}

#[test]
fn what_the_appliance_refuses_is_exit_code_1() {
    let dir = tempfile::tempdir().unwrap();
    let socket = answer(dir.path(), "400 Bad Request", r#"{"error":"QQ: no such type"}"#);
    let output = windrose(&["explain", "a.example", "QQ", "--from", "192.0.2.1"], &socket);
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(
        String::from_utf8(output.stderr).unwrap(),
        "windrose: QQ: no such type\n"
    );
}

#[test]
fn an_answer_of_another_version_is_said_to_be_one() {
    let dir = tempfile::tempdir().unwrap();
    let socket = answer(dir.path(), "200 OK", r#"{"appliance":"lab"}"#);
    let output = windrose(&["status"], &socket);
    assert_eq!(output.status.code(), Some(2));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(
        said.contains("another version") && said.lines().count() == 1,
        "{said}"
    );
}
