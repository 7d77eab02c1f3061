//! What the receiver counts, a line each: name and meaning. Read by the status and `/metrics`.

use crate::tcp::counters::{Labelled, families};

families! {
    /// What becomes of connections and requests to the receiver of reports.
    Received {
        /// A report was taken.
        Taken => "taken";
        /// Refused: the token is missing or no site's.
        BadToken => "bad_token";
        /// Refused: no report that can be, or not of this version.
        BadReport => "bad_report";
        /// Refused: the token is another site's than the report.
        OtherSite => "other_site";
        /// Refused: it does not follow the last one.
        OldSequence => "old_sequence";
        /// Refused: larger than a report may be.
        TooLarge => "too_large";
        /// Refused: too many requests from there, or from that site.
        TooMany => "too_many";
        /// Refused: another path or method than POST /v1/report.
        OtherRequest => "other_request";
        /// End: the request did not come whole in time, or was no HTTP.
        Incomplete => "incomplete";
        /// End: the TLS handshake failed or took too long.
        BadHandshake => "bad_handshake";
        /// Refused: too many connections are open, or come from there.
        TooManyConnections => "too_many_connections";
    }
}
