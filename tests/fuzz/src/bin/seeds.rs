//! Writes the seeds of a target as files, for libFuzzer: `seeds TARGET FOLDER`. Called by `./run fuzz`.

use std::process::ExitCode;
use windrose_fuzz::target;

fn main() -> ExitCode {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let [name, folder] = arguments.as_slice() else {
        eprintln!("seeds TARGET FOLDER");
        return ExitCode::from(2);
    };
    let Some(target) = target(name) else {
        eprintln!("no target {name}");
        return ExitCode::from(2);
    };
    for (at, seed) in (target.seeds)().iter().enumerate() {
        let file = std::path::Path::new(folder).join(format!("seed-{at:04}"));
        if let Err(error) = std::fs::write(&file, &seed[..seed.len().min(target.len_max)]) {
            eprintln!("cannot write {}: {error}", file.display());
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}
