//! The part of the checked configuration that says who is told of events.

use super::Token;
use crate::alerts::Kind;
use std::time::Duration;

/// `[[alert]]`: a webhook.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Alert {
    /// `url = "https://..."`: where each event is sent by POST.
    pub url: String,
    /// `events = ["failover", ...]`: kinds of events; all if empty.
    pub events: Vec<Kind>,
    /// `token = "..."`: sent as bearer token.
    pub token: Option<Token>,
    /// `timeout = "5s"`: of one try.
    pub timeout: Duration,
}
