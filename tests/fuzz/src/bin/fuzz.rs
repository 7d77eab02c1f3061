//! One target under libFuzzer, guided by coverage: `./run fuzz TARGET`. The target's name is in the environment, since
//! libFuzzer owns the command line.

#![no_main]

use libfuzzer_sys::fuzz_target;
use std::cell::RefCell;
use windrose_fuzz::{Runner, target};

thread_local! {
    static RUNNER: RefCell<Runner> = RefCell::new({
        let name = std::env::var("WINDROSE_FUZZ_TARGET").unwrap_or_default();
        (target(&name).unwrap_or_else(|| panic!("no target {name:?}")).runner)()
    });
}

fuzz_target!(|input: &[u8]| RUNNER.with_borrow_mut(|run| run(input)));
