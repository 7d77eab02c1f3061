//! The house rules that no compiler lint checks: read from the sources, run by `./run check` and `./run test`.

use std::fs;
use std::path::{Path, PathBuf};

/// Where `unsafe` may stand: files, or folders ending in "/".
const UNSAFE_ALLOWED: &[&str] = &[
    "dataplane/dpdk-sys/",
    "dataplane/src/io/",
    "dataplane/src/link.rs",
    "dataplane/src/link/",
    "dataplane/src/arch.rs",
    "dataplane/src/mmap.rs",
    "control/src/netns.rs",
    "tests/src/raw.rs",
    // Counting allocators: GlobalAlloc is an unsafe trait.
    "dataplane/tests/link_no_alloc.rs",
    "dataplane/tests/no_alloc.rs",
    // A namespace of its own, by unshare.
    "dataplane/tests/vdev.rs",
];
/// Modules of dataplane that may not panic on any input, and what each must deny.
const NO_PANIC: &[&str] = &["wire", "stages", "tables", "flow"];
const NO_PANIC_LINTS: &[&str] = &[
    "clippy::unwrap_used",
    "clippy::expect_used",
    "clippy::panic",
    "clippy::indexing_slicing",
];
/// A block may stand deep in a statement that rustfmt has broken up; clippy finds the nearer misses.
const SAFETY_LINES: usize = 6;
/// Longer files need a line that begins with `// LONG:` and the reason.
const LINES_MAX: usize = 600;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Every Rust file of the workspace: path from its root, text.
fn sources() -> Vec<(String, String)> {
    fn walk(folder: &Path, found: &mut Vec<PathBuf>) {
        for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
            let (path, name) = (entry.path(), entry.file_name());
            let name = name.to_string_lossy();
            if path.is_dir() {
                if name != "target" && !name.starts_with('.') {
                    walk(&path, found);
                }
            } else if name.ends_with(".rs") && name != "house_rules.rs" {
                found.push(path);
            }
        }
    }
    let (root, mut found) = (root(), Vec::new());
    walk(&root, &mut found);
    found.sort();
    assert!(
        found.len() > 10,
        "the sources are not where this test looks: {}",
        root.display()
    );
    let name = |path: &Path| path.strip_prefix(&root).unwrap().to_string_lossy().into_owned();
    found
        .into_iter()
        .map(|path| (name(&path), fs::read_to_string(path).unwrap()))
        .collect()
}

/// The code of a line, without a trailing comment. Good enough for this house: no `//` in strings
/// before code that matters here.
fn code(line: &str) -> &str {
    line.split("//").next().unwrap_or_default()
}

/// True when the line holds the keyword where it opens a block, function, trait, impl or extern.
fn is_unsafe(line: &str) -> bool {
    let code = code(line);
    code.match_indices("unsafe").any(|(at, word)| {
        let before = code[..at].chars().next_back();
        let after = code[at + word.len()..].trim_start();
        !before.is_some_and(|c| c.is_alphanumeric() || c == '_' || c == '"')
            && ["{", "fn ", "impl", "extern", "trait"]
                .iter()
                .any(|next| after.starts_with(next))
    })
}

fn report(rule: &str, found: Vec<String>) {
    assert!(found.is_empty(), "{rule}:\n{}", found.join("\n"));
}

#[test]
fn unsafe_stands_only_where_it_may() {
    let mut found = Vec::new();
    for (path, text) in sources() {
        let allowed = UNSAFE_ALLOWED
            .iter()
            .any(|place| path == *place || place.ends_with('/') && path.starts_with(place));
        for (at, line) in text.lines().enumerate() {
            if !allowed && is_unsafe(line) {
                found.push(format!("{path}:{}: {}", at + 1, line.trim()));
            }
        }
    }
    report("unsafe outside its rooms", found);
}

#[test]
fn every_unsafe_block_has_its_reason_above() {
    let mut found = Vec::new();
    for (path, text) in sources() {
        let lines: Vec<&str> = text.lines().collect();
        for (at, line) in lines.iter().enumerate() {
            let block =
                is_unsafe(line) && code(line).contains("unsafe {") || code(line).contains("unsafe impl");
            let above = &lines[at.saturating_sub(SAFETY_LINES)..=at];
            if block && is_unsafe(line) && !above.iter().any(|line| line.contains("SAFETY:")) {
                found.push(format!("{path}:{}: {}", at + 1, line.trim()));
            }
        }
    }
    report("unsafe without `// SAFETY:` above", found);
}

#[test]
fn the_packet_path_denies_panics() {
    let mut found = Vec::new();
    for module in NO_PANIC {
        let folder = root().join("dataplane/src").join(module);
        if !folder.exists() {
            continue;
        }
        let text = fs::read_to_string(folder.join("mod.rs")).unwrap();
        // The attribute that denies: from `deny(` to its closing bracket.
        let denied: String = text
            .split("deny(")
            .skip(1)
            .filter_map(|rest| rest.split(')').next())
            .collect::<Vec<_>>()
            .join(",");
        found.extend(
            NO_PANIC_LINTS
                .iter()
                .filter(|lint| !denied.contains(*lint))
                .map(|lint| format!("dataplane/src/{module}/mod.rs does not deny {lint}")),
        );
    }
    report("modules of the packet path that do not deny panics", found);
}

#[test]
fn files_open_with_what_they_are_and_stay_short() {
    let mut found = Vec::new();
    for (path, text) in sources() {
        let (lines, first) = (text.lines().count(), text.lines().next().unwrap_or_default());
        if !first.starts_with("//!") {
            found.push(format!("{path}: does not open with `//!`"));
        }
        if lines > LINES_MAX && !text.lines().any(|line| line.starts_with("// LONG: ")) {
            found.push(format!("{path}: {lines} lines and no `// LONG:` reason"));
        }
    }
    report("files", found);
}

#[test]
fn no_test_is_switched_off() {
    let mark = concat!("#[", "ignore");
    let found = sources()
        .into_iter()
        .filter(|(_, text)| text.contains(mark))
        .map(|(path, _)| path)
        .collect();
    report("ignored tests", found);
}

#[test]
fn control_and_pktgen_do_not_know_each_other() {
    let manifest = |name: &str| fs::read_to_string(root().join(name).join("Cargo.toml")).unwrap();
    // Only the dependency tables count: from their heading to the end.
    let dependencies = |name: &str| manifest(name).split_once("[dependencies]").unwrap().1.to_owned();
    let names = |text: &str, wanted: &str| text.lines().any(|line| line.starts_with(wanted));
    assert!(!names(&dependencies("control"), "pktgen") && !names(&dependencies("pktgen"), "control"));
    for outer in ["control", "pktgen"] {
        assert!(
            !names(&dependencies("dataplane"), outer),
            "dataplane depends on {outer}"
        );
    }
}

#[test]
fn every_package_has_its_reason() {
    let text = fs::read_to_string(root().join("packages.apt")).unwrap();
    let found = text
        .lines()
        .filter(|line| !line.starts_with('#') && !line.trim().is_empty())
        .filter(|line| {
            line.split_once('#')
                .is_none_or(|(_, reason)| reason.trim().is_empty())
        })
        .map(str::to_owned)
        .collect();
    report("packages without a reason", found);
}

#[test]
fn the_scan_knows_unsafe_code_when_it_sees_it() {
    for yes in [
        "unsafe {",
        "let x = unsafe { y() };",
        "unsafe impl Send for X {}",
        "pub unsafe fn f() {",
    ] {
        assert!(is_unsafe(yes), "{yes}");
    }
    for no in [
        "// unsafe { }",
        "unsafe_code = \"deny\"",
        "#![deny(unsafe_op_in_unsafe_fn)]",
        "is_unsafe(line)",
    ] {
        assert!(!is_unsafe(no), "{no}");
    }
}
