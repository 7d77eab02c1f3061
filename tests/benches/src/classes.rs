//! How long full tables of autonomous systems and countries take from files to client classes, and what they take of memory.
//!
//! The tables are the npm packages `@ip-location-db/asn` (CC BY 4.0: Route Views, DB-IP, NRO) and
//! `@ip-location-db/asn-country` (CC0; NRO), fetched by `npm pack` into the target folder once; where that fails, tables of the same
//! size are made up, and the row says so.

use crate::load::cpu_time;
use crate::table::{Gate, Row, Spread, Table};
use anyhow::{Context, Result, ensure};
use control::config;
use control::health::Standing;
use control::policy::Compiler;
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

/// ISPs, over which all autonomous systems are spread: every prefix of the table leads to a class.
const ISPS: usize = 200;
/// The files in a folder of tables.
const FILES: [&str; 4] = [
    "asn-ipv4.csv",
    "asn-ipv6.csv",
    "asn-country-ipv4.csv",
    "asn-country-ipv6.csv",
];

/// Measures reading and compiling, of whole tables and of a tenth.
///
/// # Errors
/// When a table is not taken.
pub(crate) fn bench(table: &mut Table, quick: bool) -> Result<()> {
    table.section("Client data, from files to classes: CPU time");
    let folder = tempfile::tempdir()?;
    let (full, source) = match fetched() {
        Ok(full) => (full, "npm @ip-location-db/asn and asn-country"),
        Err(error) => {
            eprintln!("no tables from npm ({error:#}): made up");
            (made_up(&folder.path().join("full"))?, "made up")
        }
    };
    let tenth = tenth_of(&full, &folder.path().join("tenth"))?;
    let (mut ratios, mut again) = (vec![], vec![]);
    let (mut read, mut compiled) = (vec![], vec![]);
    let mut last = None;
    for _ in 0..if quick { 2 } else { 5 } {
        let small = Loaded::new(&tenth)?;
        let large = Loaded::new(&full)?;
        ratios.push((large.read + large.compiled) / (small.read + small.compiled) / 10.0);
        again.push(large.again / large.read);
        read.push(large.read);
        compiled.push(large.compiled);
        last = Some(large);
    }
    let large = last.context("no round")?;
    let ratio = Spread::of(&ratios);
    let [read, compiled] = [read, compiled].map(|s| Spread::of(&s).median);
    table.push(Row {
        name: "full tables to a tenth of them, a row".into(),
        measured: ratio.median,
        unit: "x",
        gate: Gate::AtMost(2.5),
        note: format!(
            "{ratio}; {source}: {} rows, {read:.2} s to read, {compiled:.2} s to lay over each other and build",
            large.rows
        ),
    });
    let again = Spread::of(&again);
    table.push(Row {
        name: "files that did not change, read again, to first".into(),
        measured: again.median,
        unit: "x",
        gate: Gate::AtMost(0.3),
        note: format!("{again}"),
    });
    table.push(Row {
        name: "classes".into(),
        measured: large.classes as f64,
        unit: "",
        gate: Gate::None,
        note: format!(
            "by {} IPv4 and {} IPv6 prefixes, {ISPS} ISPs x countries",
            large.prefixes[0], large.prefixes[1]
        ),
    });
    table.push(Row {
        name: "memory held: tables and classes".into(),
        measured: large.held_mib,
        unit: "MiB",
        gate: Gate::None,
        note: format!("{:.0} MiB at most while compiling", large.peak_mib),
    });
    Ok(())
}

/// What was measured of one load.
struct Loaded {
    /// Seconds.
    read: f64,
    /// Seconds.
    compiled: f64,
    /// To read it again while it is in use, seconds.
    again: f64,
    rows: usize,
    classes: usize,
    prefixes: [usize; 2],
    held_mib: f64,
    peak_mib: f64,
}

impl Loaded {
    fn new(folder: &Path) -> Result<Self> {
        let before = memory("VmRSS")?;
        // From here on the highest counts anew.
        std::fs::write("/proc/self/clear_refs", "5").context("clear_refs")?;
        let start = cpu_time()?;
        let (config, _) =
            config::load_with_warnings(&folder.join("w.toml")).map_err(|found| anyhow::anyhow!("{found}"))?;
        let read = cpu_time()? - start;
        let data = &config.data;
        let rows = data.asn.iter().map(|t| t.rows).sum::<usize>()
            + data.country.iter().map(|t| t.rows).sum::<usize>();
        let mut compiler = Compiler::default();
        let made = compiler
            .compile(Arc::new(config), vec![], |_| Standing::UP, 0)
            .context("compiling")?;
        let all = cpu_time()? - start;
        let (held_mib, peak_mib) = (memory("VmRSS")? - before, memory("VmHWM")? - before);
        let start = cpu_time()?;
        let same =
            config::load_with_warnings(&folder.join("w.toml")).map_err(|found| anyhow::anyhow!("{found}"))?;
        let again = cpu_time()? - start;
        drop(same);
        let loaded = Self {
            read,
            compiled: all - read,
            again,
            rows,
            classes: made.index.classes.len(),
            prefixes: made.index.sizes.prefixes,
            held_mib,
            peak_mib,
        };
        ensure!(loaded.classes > ISPS, "only {} classes", loaded.classes);
        Ok(loaded)
    }
}

/// A line of /proc/self/status, MiB.
fn memory(key: &str) -> Result<f64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix(key))
        .context("no such line")?;
    let kib = line.trim_matches([':', '\t', ' ', 'k', 'B']);
    Ok(kib.parse::<f64>()? / 1024.0)
}

/// The folder with the packages' files, fetched if they are not there.
fn fetched() -> Result<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/client-data");
    if !FILES.iter().all(|file| folder.join(file).is_file()) {
        std::fs::create_dir_all(&folder)?;
        run(
            Command::new("timeout").args([
                "120",
                "npm",
                "pack",
                "--silent",
                "@ip-location-db/asn",
                "@ip-location-db/asn-country",
            ]),
            &folder,
        )?;
        let packed: Vec<PathBuf> = std::fs::read_dir(&folder)?
            .filter_map(|entry| Some(entry.ok()?.path()))
            .filter(|path| path.extension().is_some_and(|e| e == "tgz"))
            .collect();
        for path in packed {
            let tar = ["--strip-components=1", "--no-same-owner", "-xzf"];
            run(Command::new("tar").args(tar).arg(path), &folder)?;
        }
    }
    with_config(&folder)?;
    Ok(folder)
}

fn run(command: &mut Command, folder: &Path) -> Result<()> {
    let status = command
        .current_dir(folder)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    let status = status.with_context(|| format!("cannot run {command:?}"))?;
    ensure!(status.success(), "{command:?}: {status}");
    Ok(())
}

/// Tables of the size of the packages'.
fn made_up(folder: &Path) -> Result<PathBuf> {
    std::fs::create_dir_all(folder)?;
    let country = |i: u32| ["KR", "JP", "US", "DE", "FR", "BR", "ZA", "IN"][i as usize % 8];
    let (mut asn, mut countries) = (String::new(), String::new());
    for i in 0..412_000u32 {
        let first = 0x0100_0000 + i * 8192;
        let last = first + if i % 8 < 3 { 767 } else { 1023 };
        let (first, last) = (std::net::Ipv4Addr::from(first), std::net::Ipv4Addr::from(last));
        _ = writeln!(
            asn,
            "{first},{last},{},\"Network, number {i}\"",
            i * 7 % 84_000 + 1
        );
        if i < 142_000 {
            _ = writeln!(countries, "{first},{last},{}", country(i / 50));
        }
    }
    std::fs::write(folder.join(FILES[0]), asn)?;
    std::fs::write(folder.join(FILES[2]), countries)?;
    let (mut asn, mut countries) = (String::new(), String::new());
    for i in 0..103_000u32 {
        let net = format!("{:x}:{:x}", 0x2400 + (i >> 16), i & 0xffff);
        let range = format!("{net}::,{net}:ffff:ffff:ffff:ffff:ffff:ffff");
        _ = writeln!(asn, "{range},{},n{i}", i * 7 % 84_000 + 1);
        if i < 68_000 {
            _ = writeln!(countries, "{range},{}", country(i / 50));
        }
    }
    std::fs::write(folder.join(FILES[1]), asn)?;
    std::fs::write(folder.join(FILES[3]), countries)?;
    with_config(folder)?;
    Ok(folder.to_owned())
}

/// Every tenth row.
fn tenth_of(full: &Path, folder: &Path) -> Result<PathBuf> {
    std::fs::create_dir_all(folder)?;
    for file in FILES {
        let text = std::fs::read_to_string(full.join(file))?;
        let rows: String = text.split_inclusive('\n').step_by(10).collect();
        std::fs::write(folder.join(file), rows)?;
    }
    with_config(folder)?;
    Ok(folder.to_owned())
}

/// Writes `w.toml` beside the tables: every autonomous system in one of [`ISPS`] ISPs, and a service that looks at ISP and country.
fn with_config(folder: &Path) -> Result<()> {
    let mut asns = BTreeSet::new();
    for file in &FILES[..2] {
        let text = std::fs::read_to_string(folder.join(file))?;
        asns.extend(
            text.lines()
                .filter_map(|line| line.split(',').nth(2)?.parse::<u32>().ok()),
        );
    }
    let mut toml = format!(
        "[dataplane]\ncores = [0]\nshare_cores = true\n\n[[port]]\nname = \"p\"\ndevice = \"net_null0\"\n\
         addresses = [\"192.0.2.53\"]\n\n[data]\nasn = [\"{}\", \"{}\"]\ncountry = [\"{}\", \"{}\"]\n",
        FILES[0], FILES[1], FILES[2], FILES[3]
    );
    for isp in 0..ISPS {
        let of: Vec<String> = asns.iter().skip(isp).step_by(ISPS).map(u32::to_string).collect();
        _ = write!(
            toml,
            "\n[[isp]]\nname = \"isp{isp}\"\nasns = [{}]\n",
            of.join(",")
        );
    }
    toml.push_str(
        "\n[[site]]\nname = \"a\"\nisp = \"isp0\"\ncountry = \"KR\"\n\n[[site]]\nname = \"b\"\nisp = \"isp1\"\ncountry = \"US\"\n\
         \n[[zone]]\nname = \"example.com\"\nfile = \"example.zone\"\n\n[[service]]\nname = \"vod.example.com\"\n\
         chain = [\"health\", \"isp\", \"geo\", \"static\"]\ngeo = { by = [\"country\"] }\nmember = [\n\
         { address = \"198.51.100.1\", site = \"a\" }, { address = \"198.51.100.2\", site = \"b\" } ]\n",
    );
    std::fs::write(folder.join("w.toml"), toml)?;
    let zone = "$TTL 300\n@ SOA ns1 h 1 3600 600 86400 60\n@ NS ns1\nns1 A 192.0.2.53\n";
    std::fs::write(folder.join("example.zone"), zone)?;
    Ok(())
}
