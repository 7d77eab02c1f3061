//! Every fuzz target over its seeds, each cut at every byte, its kept corpus, and a fixed number of mutations: the
//! same inputs on every machine. What panics is written to `target/fuzz-findings` and said with its name.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use windrose_fuzz::{Target, corpus, mutate::mutate, target};

/// Seeds that are cut at every byte: more would only repeat.
const CUT_MAX: usize = 24;

fn run(name: &str) {
    let Target {
        runner,
        seeds,
        bounded,
        len_max,
        ..
    } = target(name).unwrap();
    let mut all = seeds();
    assert!(!all.is_empty(), "{name} has seeds");
    all.extend(corpus(name));
    let mut runner = runner();
    let mut one = |input: &[u8]| {
        let input = &input[..input.len().min(len_max)];
        if catch_unwind(AssertUnwindSafe(|| runner(input))).is_err() {
            let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("fuzz-findings");
            std::fs::create_dir_all(&folder).unwrap();
            let file = folder.join(name);
            std::fs::write(&file, input).unwrap();
            panic!(
                "fuzz target {name}: the panic above; its input is {}: once mended, keep it in tests/fuzz/corpus/{name}",
                file.display()
            );
        }
    };
    all.iter().for_each(|input| one(input));
    for input in all.iter().step_by((all.len() / CUT_MAX).max(1)) {
        (0..input.len().min(600)).for_each(|cut| one(&input[..cut]));
    }
    let mut rng = fastrand::Rng::with_seed(1);
    for turn in 0..bounded {
        let at = turn as usize % all.len();
        one(&mutate(&mut rng, &all, at, len_max));
    }
}

macro_rules! targets {
    ($($name:ident)*) => {$(
        #[test]
        fn $name() {
            run(stringify!($name));
        }
    )*

        #[test]
        fn every_target_is_here() {
            let here = [$(stringify!($name)),*];
            let all: Vec<_> = windrose_fuzz::TARGETS.iter().map(|target| target.name).collect();
            assert_eq!(all, here);
        }
    };
}

targets!(frame message edns stream exception zone config);
