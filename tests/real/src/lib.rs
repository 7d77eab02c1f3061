//! Real servers, real clients that know their response latency, and what passes between them: nginx, memcached, QUIC, WireGuard.
//!
//! ```text
//!   client -- near -- out ==[user-space link]== in -- vantage -- on -- in -- far -- server
//!               \-- back ---------------------------------------------- back --/
//! ```
//!
//! Requests pass the vantage point, answers do not. [`wires`] makes the namespaces, [`link`] delays, loses and reorders on the
//! client's side, [`origin`], [`programs`] and [`quic`] serve, [`user`] and [`http2`] ask and note the truth of each burst, [`case`]
//! runs one of them while tcpdump records, [`judge`] evaluates the capture with the stage and with the published algorithms.
//! Used by the tests of this crate and by `./run bench accuracy`. Needs root.

pub mod case;
pub mod http2;
pub mod judge;
pub mod link;
pub mod origin;
pub mod programs;
pub mod quic;
pub mod timer;
pub mod user;
pub mod wires;
