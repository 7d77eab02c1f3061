//! The `windrose` command.
fn main() {}
