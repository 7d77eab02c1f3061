//! Reads `[[alert]]`: who is told of events. Called by `config::load`.

use super::model::{Alert, Token};
use super::reader::Table;
use crate::alerts::Kind;
use hyper::Uri;
use std::time::Duration;

/// Longest URL, bytes.
const URL_MAX: usize = 2000;

/// `[[alert]]`.
pub(crate) fn alert(table: &Table<'_>) -> Option<Alert> {
    let url = table.need("url").and_then(|value| {
        let text = value.word(URL_MAX)?;
        let uri: Option<Uri> = text.parse().ok();
        let scheme = uri.as_ref().and_then(Uri::scheme_str);
        if !matches!(scheme, Some("http" | "https")) || uri.as_ref().is_none_or(|uri| uri.host().is_none()) {
            // Some services' URLs are secrets: not shown.
            return value.wrong("`url` must be http://... or https://... with a host");
        }
        Some(text.to_owned())
    });
    let mut events = Vec::new();
    if let Some(value) = table.get("events") {
        let items = value.some_items("leave it out for all kinds of events");
        events.extend(items.iter().filter_map(|item| item.choice(&Kind::NAMES)));
    }
    let token = table.get("token").and_then(|value| {
        let text = value.string()?;
        if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_graphic()) {
            return value.wrong("`token` must be printable ASCII characters without spaces");
        }
        Some(Token(text.to_owned()))
    });
    let limits = Duration::from_millis(100)..=Duration::from_secs(60);
    let timeout = table
        .get("timeout")
        .and_then(|value| value.duration(limits, "from 100ms to 60s"));
    Some(Alert {
        url: url?,
        events,
        token,
        timeout: timeout.unwrap_or(Duration::from_secs(5)),
    })
}
