//! A reply as text, for `windrose explain`: what the engine wrote, read by another library. Called by [`super`].

use domain::base::opt::ExtendedError;
use domain::base::wire::ParseError;
use domain::base::{Message, ToName};
use domain::rdata::AllRecordData;

/// What a reply says.
pub(super) struct Read {
    /// RCODE mnemonic, or `unreadable`.
    pub(super) rcode: String,
    /// Records of the answer section.
    pub(super) answer: Vec<String>,
    /// Records of the authority section.
    pub(super) authority: Vec<String>,
    /// The lowest TTL of the answer, or of the authority if there is none, seconds.
    pub(super) ttl: Option<u32>,
    /// Extended error (RFC 8914).
    pub(super) extended_error: Option<String>,
}

/// Reads a reply.
pub(super) fn read(reply: &[u8]) -> Read {
    let unreadable = || Read {
        rcode: "unreadable".into(),
        answer: Vec::new(),
        authority: Vec::new(),
        ttl: None,
        extended_error: None,
    };
    Message::from_octets(reply)
        .map_err(|_| ParseError::ShortInput)
        .and_then(sections)
        .unwrap_or_else(|_| unreadable())
}

fn sections(message: Message<&[u8]>) -> Result<Read, ParseError> {
    let (_, answer, authority, _) = message.sections()?;
    let texts = [answer, authority].map(|section| {
        let records: Vec<_> = section.limit_to::<AllRecordData<_, _>>().flatten().collect();
        let ttl = records.iter().map(|r| r.ttl().as_secs()).min();
        let text = records.iter().map(|r| {
            let owner = r.owner().to_name::<Vec<u8>>();
            format!("{owner}. {} {} {}", r.ttl().as_secs(), r.rtype(), r.data())
        });
        (text.collect(), ttl)
    });
    let [(answer, of_answer), (authority, of_authority)] = texts;
    let extended = message
        .opt()
        .and_then(|opt| opt.opt().iter::<ExtendedError<_>>().flatten().next());
    Ok(Read {
        rcode: message.opt_rcode().to_string(),
        answer,
        authority,
        ttl: of_answer.or(of_authority),
        extended_error: extended.map(|error| match error.text() {
            Some(Ok(text)) => format!("{} ({text})", error.code()),
            _ => error.code().to_string(),
        }),
    })
}
