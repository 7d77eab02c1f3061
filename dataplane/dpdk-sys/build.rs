//! Finds the DPDK of the distribution by pkg-config, links it shared, and compiles `shim.c` with its flags.

/// Versions that the tests of this workspace have run with: from the first, below the second.
const TESTED: (&str, &str) = ("22.11", "23.0");
/// Set to build against another version all the same. The layout asserts still hold or fail.
const OVERRIDE: &str = "WINDROSE_DPDK_UNTESTED";

fn main() {
    println!("cargo:rerun-if-changed=src/shim.c");
    println!("cargo:rerun-if-env-changed={OVERRIDE}");
    // Looked at first without linking, so that the version is judged before anything else.
    let found = pkg_config::Config::new().cargo_metadata(false).probe("libdpdk");
    let version = match found {
        Ok(library) => library.version,
        Err(error) => fail(&format!(
            "DPDK was not found: pkg-config does not know libdpdk.\n\
             Install it (Debian, Ubuntu: `apt install libdpdk-dev pkg-config`), or set PKG_CONFIG_PATH to where \
             libdpdk.pc lies,\nor build without real ports: `--no-default-features`.\n\n{error}"
        )),
    };
    if std::env::var_os(OVERRIDE).is_none()
        && !(number(TESTED.0) <= number(&version) && number(&version) < number(TESTED.1))
    {
        fail(&format!(
            "DPDK {version} is installed, but {} up to, not including, {} is what this was tested with.\n\
             Set {OVERRIDE}=1 to build against it all the same, and run the tests of `dataplane`.",
            TESTED.0, TESTED.1
        ));
    }
    let library = match pkg_config::Config::new().probe("libdpdk") {
        Ok(library) => library,
        Err(error) => fail(&error.to_string()),
    };
    let mut shim = cc::Build::new();
    shim.file("src/shim.c")
        .includes(&library.include_paths)
        .warnings(true)
        .extra_warnings(false);
    // The crate `pkg-config` hands on include paths and defines only; DPDK's headers also want
    // `-include rte_config.h` and the `-march` of the build.
    for flag in cflags() {
        if !flag.starts_with("-I") {
            shim.flag(&flag);
        }
    }
    shim.opt_level(2).compile("windrose_dpdk_shim");
}

/// `pkg-config --cflags libdpdk`, word by word.
fn cflags() -> Vec<String> {
    let tool = std::env::var("PKG_CONFIG").unwrap_or_else(|_| "pkg-config".into());
    match std::process::Command::new(&tool)
        .args(["--cflags", "libdpdk"])
        .output()
    {
        Ok(out) if out.status.success() => String::from_utf8_lossy(&out.stdout)
            .split_whitespace()
            .map(str::to_owned)
            .collect(),
        other => fail(&format!("`{tool} --cflags libdpdk` failed: {other:?}")),
    }
}

/// "22.11.4" as (22, 11).
fn number(version: &str) -> (u32, u32) {
    let mut parts = version
        .split(|c: char| !c.is_ascii_digit())
        .map(|part| part.parse().unwrap_or(0));
    (parts.next().unwrap_or(0), parts.next().unwrap_or(0))
}

fn fail(message: &str) -> ! {
    eprintln!("\nerror: {message}\n");
    std::process::exit(1);
}
