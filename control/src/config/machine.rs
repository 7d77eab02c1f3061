//! Checks of a configuration against the machine that it is to run on. Not part of `config::load`:
//! a configuration may be checked on a desk for another machine. `windrose run` calls them.

use super::model::Dataplane;

/// Whether every configured core exists here and may be used by this process (cpuset, taskset).
/// The error names the cores that are missing and those that there are.
pub fn check_cores(dataplane: &Dataplane) -> Result<(), String> {
    let available: Vec<usize> = core_affinity::get_core_ids()
        .unwrap_or_default()
        .iter()
        .map(|core| core.id)
        .collect();
    missing_cores(&dataplane.cores, &available)
}

fn missing_cores(wanted: &[usize], available: &[usize]) -> Result<(), String> {
    let missing: Vec<String> = wanted
        .iter()
        .filter(|core| !available.contains(core))
        .map(usize::to_string)
        .collect();
    if missing.is_empty() {
        return Ok(());
    }
    let available: Vec<String> = available.iter().map(usize::to_string).collect();
    Err(format!(
        "[dataplane] cores names CPU {}, but this process may use only CPU {}: change `cores`, or the CPU set \
         that it is started with",
        missing.join(", "),
        available.join(", ")
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_core_that_is_not_there_is_named() {
        assert_eq!(missing_cores(&[1, 0], &[0, 1]), Ok(()));
        let error = missing_cores(&[1, 7], &[0, 1]).unwrap_err();
        assert!(
            error.contains("CPU 7,") && error.contains("only CPU 0, 1"),
            "{error}"
        );
    }
}
