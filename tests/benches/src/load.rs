//! How long zones take from files to tables: read, checked, compiled. A name must not cost more because there are
//! many, or many zones.

use crate::table::{Gate, Row, Spread, Table};
use anyhow::{Context, Result};
use control::config;
use control::health::Standing;
use control::policy::Compiler;
use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;

/// So many zones of so many names each.
#[derive(Clone, Copy)]
struct Shape {
    zones: usize,
    names: usize,
}

impl Shape {
    fn total(self) -> f64 {
        (self.zones * self.names) as f64
    }
}

const FEW: Shape = Shape {
    zones: 1,
    names: 10_000,
};
const ONE_ZONE: Shape = Shape {
    zones: 1,
    names: 1_000_000,
};
const MANY_ZONES: Shape = Shape {
    zones: 10_000,
    names: 100,
};

/// Measures the time of a name in each shape.
///
/// # Errors
/// When a configuration is not taken.
pub(crate) fn bench(table: &mut Table, quick: bool) -> Result<()> {
    table.section("Load of zones, from files to tables: CPU time a name");
    let (mut one, mut many) = (vec![], vec![]);
    let (mut one_s, mut many_s) = ([vec![], vec![]], [vec![], vec![]]);
    let folders = [FEW, ONE_ZONE, MANY_ZONES]
        .into_iter()
        .map(|shape| Ok((shape, written(shape)?)))
        .collect::<Result<Vec<_>>>()?;
    for _ in 0..if quick { 2 } else { 5 } {
        let mut times = vec![];
        for (shape, folder) in &folders {
            let parts = load(folder.path())?;
            times.push((parts[0] + parts[1]) / shape.total());
            let seconds = match shape.zones {
                _ if shape.total() < ONE_ZONE.total() => continue,
                1 => &mut one_s,
                _ => &mut many_s,
            };
            for (all, part) in seconds.iter_mut().zip(parts) {
                all.push(part);
            }
        }
        let [few, large, spread] = times[..] else { continue };
        one.push(large / few);
        many.push(spread / large);
    }
    for (name, ratios, seconds) in [
        ("1,000,000 names in a zone to 10,000", one, one_s),
        ("10,000 zones of 100 names to one of 1,000,000", many, many_s),
    ] {
        let ratio = Spread::of(&ratios);
        let [read, compiled] = seconds.map(|s| Spread::of(&s).median);
        table.push(Row {
            name: name.into(),
            measured: ratio.median,
            unit: "x",
            gate: Gate::AtMost(2.5),
            note: format!("{ratio}; 1,000,000: {read:.2} s to read and check, {compiled:.2} s to compile"),
        });
    }
    Ok(())
}

/// The files of a shape.
fn written(shape: Shape) -> Result<tempfile::TempDir> {
    let folder = tempfile::tempdir()?;
    let mut toml = String::from(
        "[dataplane]\ncores = [0]\nshare_cores = true\n\n[[port]]\nname = \"p\"\ndevice = \"net_null0\"\n\
         addresses = [\"192.0.2.53\"]\n",
    );
    for zone in 0..shape.zones {
        _ = write!(
            toml,
            "\n[[zone]]\nname = \"z{zone}.example\"\nfile = \"z{zone}\"\n"
        );
        let mut text =
            String::from("$TTL 300\n@ SOA ns1 h 1 3600 600 86400 60\n@ NS ns1\nns1 A 192.0.2.53\n");
        for name in 0..shape.names {
            _ = writeln!(text, "n{name:07} A 203.0.{}.{}", name / 250 % 250, name % 250 + 1);
        }
        std::fs::write(folder.path().join(format!("z{zone}")), text)?;
    }
    std::fs::write(folder.path().join("w.toml"), toml)?;
    Ok(folder)
}

/// Time that this thread was on a CPU, seconds: what else runs on the machine does not count.
pub(crate) fn cpu_time() -> Result<f64> {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat")?;
    let nanoseconds = stat.split(' ').next().context("empty schedstat")?;
    Ok(nanoseconds.parse::<f64>()? / 1e9)
}

/// Seconds of CPU time to read and check, and to compile; freeing not counted.
fn load(folder: &Path) -> Result<[f64; 2]> {
    let start = cpu_time()?;
    let (config, _) =
        config::load_with_warnings(&folder.join("w.toml")).map_err(|found| anyhow::anyhow!("{found}"))?;
    let read = cpu_time()? - start;
    let compiled = Compiler::default()
        .compile(Arc::new(config), vec![], |_| Standing::UP, 0)
        .context("compiling")?;
    let all = cpu_time()? - start;
    drop(compiled);
    Ok([read, all - read])
}
