//! Simulated clients whose response latency is known, and how near the estimators come.
//!
//! [`sim`] makes the packets of a closed-loop client as a middle box sees them, with the truth of each burst; [`cases`] has
//! the scenarios; [`score`] runs an estimator over a trace and compares; [`table`] prints all of them side by side.
//! Used by the tests of this crate (which hold the gates) and by `./run bench accuracy`. Everything is seeded.

pub mod cases;
pub mod score;
pub mod sim;
pub mod table;
