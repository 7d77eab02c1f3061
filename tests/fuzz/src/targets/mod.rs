//! The targets, one file each, and what they share.

pub(crate) mod config;
pub(crate) mod edns;
pub(crate) mod exception;
pub(crate) mod frame;
pub(crate) mod message;
pub(crate) mod stream;
pub(crate) mod zone;
