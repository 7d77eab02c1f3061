//! How a member stands: what health, ramps after recovery, brown-outs and overrides come to together.
//!
//! Made by the appliance's run loop for each target; `policy::slots` turns it into words for the workers.

/// How a member stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Standing {
    /// It can be given.
    pub up: bool,
    /// How often it is a candidate when it could be: sixteenths of the draws, 0 to [`Standing::WHOLE`]. 0: only when no
    /// other is left.
    pub share: u8,
}

impl Standing {
    /// The share of a member that is always a candidate.
    pub const WHOLE: u8 = 16;
    /// In full service.
    pub const UP: Self = Self {
        up: true,
        share: Self::WHOLE,
    };
    /// Not to be given.
    pub const DOWN: Self = Self {
        up: false,
        share: Self::WHOLE,
    };
}
