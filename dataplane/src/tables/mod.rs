//! The read side of what control compiles: immutable on a worker, swapped whole by a snapshot.

pub mod addresses;
