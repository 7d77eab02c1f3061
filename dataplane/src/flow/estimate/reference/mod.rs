//! The published algorithms, each as its authors wrote it, to compare [`super::Tcp`] and [`super::Hidden`] with.
//!
//! Used by tests and benches alone; they allocate, and no stage calls them. Times are moments and spans as everywhere.
//!
//! | module | what | source |
//! |---|---|---|
//! | [`ensemble`] | fixed timeouts, and an ensemble that picks one by the sample cliff | HotNets 2022, algorithms 1 and 2 |
//! | [`literal`] | ten dynamic modes and the proportional mode sum | PIRATE, arXiv 2505.14358, algorithm 2 and section 3 |
//! | [`valley`] | the same in 64 bytes: relative modes, split at the widest valley | our own, from simulations |
//! | [`SynAck`] | one sample a connection | Jiang and Dovrolis 2002 |

pub mod ensemble;
pub mod literal;
pub mod valley;

use super::super::{Moment, Span};

/// An algorithm that is given the times of a client's packets.
pub trait Estimator {
    /// Takes one packet. Packets without data (`pure_ack`) are told, for those that want to leave them out. Gives a sample:
    /// of the burst that ended, or the mean of the epoch that did.
    fn packet(&mut self, at: Moment, pure_ack: bool) -> Option<Span>;
}

/// SYN to ACK: the first two packets of a connection.
#[derive(Clone, Copy, Debug, Default)]
pub struct SynAck {
    syn: Option<Moment>,
    done: bool,
}

impl Estimator for SynAck {
    fn packet(&mut self, at: Moment, _pure_ack: bool) -> Option<Span> {
        match self.syn {
            None => {
                self.syn = Some(at);
                None
            }
            Some(_) if self.done => None,
            Some(syn) => {
                self.done = true;
                at.since(syn)
            }
        }
    }
}
