//! Sites' reports: what sites say of themselves, and where they say it.
//!
//! * [`report`]: a report and its answer, as JSON; what `windrose agent` and other systems send.
//! * [`store`]: the newest report of each site, who is silent, and [`Facts`](crate::policy::chain::Facts) for the
//!   chain; [`rtt`] keeps round-trip times by prefix and site.
//! * [`receiver`]: the TLS listener that takes them; [`certificate`] what it shows.
//!
//! Made by the appliance's run loop; the agent uses [`report`] alone. Owns no plan and no word: what follows from a
//! report is the compiler's.

pub mod certificate;
pub mod counters;
mod limits;
pub mod receiver;
pub mod report;
pub mod rtt;
pub mod silence;
pub mod store;

pub use receiver::{Bound, Receiver};
pub use report::Report;
pub use silence::{is_avoided, is_feed_down};
pub use store::{Changes, ReportStore};
