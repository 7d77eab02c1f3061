//! The configuration: one TOML file and the zone files that it names, checked whole.
pub mod model;
