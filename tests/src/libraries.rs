//! Replies as two independent DNS libraries read them, `domain` and `hickory-proto`: both must take every byte, and agree with
//! [`crate::message`].
//!
//! Called for each reply that the matrix and the comparison with other servers see; owns nothing.

use crate::message::Reply;
use anyhow::{Context, Result, ensure};
use domain::base::Message as DomainMessage;
use domain::base::iana::Rtype;
use domain::rdata::AllRecordData;

/// What a message amounts to: id, extended RCODE, records in answer, authority and additional (OPT not counted), and the sum of
/// their TTLs.
type Gist = (u16, u16, [usize; 3], u64);

/// Reads a reply with both libraries.
///
/// # Errors
/// When one cannot read all of it, or reads something else than [`Reply`].
pub fn both_read(message: &[u8], reply: &Reply) -> Result<()> {
    // Neither knows a client subnet of family 0, which some resolvers send and get back.
    if reply.option(8)?.is_some_and(|subnet| subnet.starts_with(&[0, 0])) {
        return Ok(());
    }
    let wanted = ours(reply);
    let got = by_domain(message).context("domain cannot read it")?;
    ensure!(got == wanted, "domain reads {got:?}, not {wanted:?}");
    let got = by_hickory(message).context("hickory-proto cannot read it")?;
    ensure!(got == wanted, "hickory-proto reads {got:?}, not {wanted:?}");
    Ok(())
}

fn ours(reply: &Reply) -> Gist {
    let records = |section: usize| reply.sections[section].iter().filter(|r| r.rtype != 41);
    let ttls = (0..3).flat_map(records).map(|r| u64::from(r.ttl)).sum();
    (
        reply.id,
        reply.rcode(),
        [0, 1, 2].map(|section| records(section).count()),
        ttls,
    )
}

fn by_domain(bytes: &[u8]) -> Result<Gist> {
    let message = DomainMessage::from_octets(bytes)?;
    let (mut counts, mut ttls) = ([0; 3], 0);
    let (_, answer, authority, additional) = message.sections()?;
    for (section, records) in [answer, authority, additional].into_iter().enumerate() {
        for record in records {
            let record = record?;
            if record.rtype() == Rtype::OPT {
                continue;
            }
            record
                .to_record::<AllRecordData<_, _>>()?
                .context("RDATA of no kind")?;
            counts[section] += 1;
            ttls += u64::from(record.ttl().as_secs());
        }
    }
    // Its options, each by its own rules.
    if let Some(opt) = message.opt() {
        for option in opt.opt().iter::<domain::base::opt::AllOptData<_, _>>() {
            option?;
        }
    }
    Ok((message.header().id(), message.opt_rcode().to_int(), counts, ttls))
}

fn by_hickory(bytes: &[u8]) -> Result<Gist> {
    let message = hickory_proto::op::Message::from_vec(bytes)?;
    let sections = [&message.answers, &message.authorities, &message.additionals];
    let ttls = sections
        .iter()
        .flat_map(|section| section.iter())
        .map(|r| u64::from(r.ttl))
        .sum();
    let rcode = u16::from(message.metadata.response_code);
    Ok((message.metadata.id, rcode, sections.map(Vec::len), ttls))
}
