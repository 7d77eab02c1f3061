//! DNS on the wire, item by item: a table of questions and what must come for each, asked over UDP and TCP, IPv4 and
//! IPv6, of one running appliance. docs/dns.md says of each item what Windrose does and why. Needs root.

mod elsewhere;
mod frames;
mod item;
mod shown;
mod table;
mod world;

use anyhow::{Context, Result, ensure};
use item::{Over, Row};
use std::fs;
use std::path::Path;
use windrose_tests::datagram::{Asker, Came, SENTINEL};
use windrose_tests::laws;
use windrose_tests::libraries;
use windrose_tests::message::{Reply, flag};
use world::{Setting, World};

/// What holds of every reply, whatever was asked.
fn is_reply_to(query: &[u8], reply: &Reply, raw: &[u8], limit: usize) -> Result<()> {
    let sent = u16::from_be_bytes([query[2], query[3]]);
    // RD and CD mean something in queries alone.
    let kept = 0x7800 | flag::RD | flag::CD;
    let sent = if sent & 0x7800 == 0 { sent } else { sent & 0x7800 };
    ensure!(reply.id.to_be_bytes() == query[..2], "another id: {}", reply.id);
    ensure!(reply.flags & flag::QR != 0, "QR is clear");
    ensure!(
        reply.flags & kept == sent & kept,
        "opcode, RD or CD: {:04x} for {sent:04x}",
        reply.flags
    );
    ensure!(
        reply.flags & (flag::RA | flag::Z | flag::AD) == 0,
        "RA, Z or AD: {:04x}",
        reply.flags
    );
    let question = query.get(12..12 + reply.question.len());
    ensure!(
        question == Some(&reply.question),
        "another question: {:02x?}",
        reply.question
    );
    ensure!(
        raw.len() <= limit,
        "{} bytes where {limit} are allowed",
        raw.len()
    );
    // The owner of an answer to the question itself is a pointer to it.
    if reply.sections[0]
        .first()
        .is_some_and(|first| reply.question.starts_with(&first.owner))
    {
        let at = 12 + reply.question.len();
        ensure!(
            raw.get(at..at + 2) == Some(&[0xc0, 12]),
            "the first owner is no pointer to the question"
        );
    }
    Ok(())
}

/// Asks a row one way; what is wrong with what came.
fn ask(row: &Row, id: u16, udp: bool, asker: &mut Asker) -> Result<()> {
    let query = row.query.message(id);
    let came = match asker.ask(&query)? {
        Came::Nothing => "nothing".to_owned(),
        Came::End => "end".to_owned(),
        Came::Last(_) => "a reply, then the end".to_owned(),
        Came::Reply(bytes) => {
            let reply = Reply::read(&bytes).with_context(|| format!("in {bytes:02x?}"))?;
            let limit = if udp { row.query.udp_limit() } else { 65_535 };
            libraries::both_read(&bytes, &reply)?;
            let line = reply.line()?;
            is_reply_to(&query, &reply, &bytes, limit).with_context(|| line.clone())?;
            line
        }
    };
    let matches = match row.want.strip_suffix("..") {
        Some(start) => came.starts_with(start),
        None => came == row.want,
    };
    ensure!(matches, "wanted {}\n      came   {came}", row.want);
    Ok(())
}

#[test]
fn every_item_is_as_the_table_says() {
    let items = table::items();
    let mut world = World::start().unwrap();
    let (mut failures, mut asked) = (Vec::new(), 0u32);
    for setting in [Setting::Usual, Setting::Guarded, Setting::Require, Setting::Bare] {
        if setting != Setting::Usual {
            world.set(setting).unwrap();
        }
        let mut askers = world.askers().unwrap();
        let usual = matches!(setting, Setting::Usual | Setting::Guarded);
        for item in &items {
            let rows = item.rows.iter().enumerate();
            let rows = rows.filter(|(_, row)| row.setting.map_or(usual, |only| only == setting));
            for (n, row) in rows {
                for (way, asker) in &mut askers {
                    let udp = way.starts_with("UDP");
                    let wanted = match row.over {
                        Over::Both => true,
                        Over::Udp => udp,
                        Over::Tcp => !udp,
                    };
                    if !wanted {
                        continue;
                    }
                    asked += 1;
                    let id = u16::try_from(asked % u32::from(SENTINEL)).unwrap();
                    if let Err(error) = ask(row, id, udp, asker) {
                        failures.push(format!(
                            "item {} ({}), row {}, {way}, {setting:?}: {error:#}\n      asked  {:02x?}",
                            item.number,
                            item.subject,
                            n + 1,
                            row.query.message(id)
                        ));
                        // Whatever is still to come on this way is for the row before.
                        *asker = world
                            .askers()
                            .unwrap()
                            .into_iter()
                            .find(|(other, _)| other == way)
                            .unwrap()
                            .1;
                    }
                }
            }
            for (_, how) in item.shown.iter().filter(|(only, _)| *only == setting) {
                asked += 1;
                if let Err(error) = how(&mut world) {
                    failures.push(format!(
                        "item {} ({}), {setting:?}: {error:#}",
                        item.number, item.subject
                    ));
                }
            }
            // Once: rate limits are by client.
            if setting == Setting::Usual {
                let wire = frames::Wire::open(&world).unwrap();
                for case in &item.frames {
                    asked += 1;
                    if let Err(error) = wire.show(&world, case) {
                        let what = case.what();
                        failures.push(format!(
                            "item {} ({}), {what}, {setting:?}: {error:#}",
                            item.number, item.subject
                        ));
                    }
                }
            }
        }
    }
    let totals = laws::hold(&world.appliance.take().unwrap().stop().unwrap());
    let seen = failures.len();
    assert!(seen == 0, "{seen} of {asked} fail:\n\n{}", failures.join("\n\n"));
    println!("{asked} asked; {:?}", totals.unwrap());
}

fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
}

#[test]
fn there_is_every_item_and_each_is_shown() {
    let items = table::items();
    let numbers: Vec<u32> = items.iter().map(|item| item.number).collect();
    assert_eq!(numbers, (1..=92).collect::<Vec<_>>());
    for item in &items {
        let rows = item.rows.len() + item.shown.len() + item.frames.len() + item.elsewhere.len();
        assert!(rows > 0, "item {} has no row", item.number);
        for (file, function) in &item.elsewhere {
            let text = fs::read_to_string(root().join(file)).unwrap();
            let test = text
                .split("#[test]\n")
                .any(|test| test.trim_start().starts_with(&format!("fn {function}(")));
            assert!(test, "item {}: no test {function} in {file}", item.number);
        }
    }
}

#[test]
fn the_documentation_has_the_same_items() {
    let text = fs::read_to_string(root().join("docs/dns.md")).unwrap();
    let documented: Vec<(u32, String, bool)> = text
        .lines()
        .filter_map(|line| {
            let mut columns = line.strip_prefix("| ")?.strip_suffix(" |")?.split(" | ");
            let number = columns.next()?.trim().parse().ok()?;
            let (subject, does, rfc) = (columns.next()?, columns.next()?, columns.next()?);
            assert!(!does.trim().is_empty() && !rfc.trim().is_empty(), "{line}");
            Some((
                number,
                subject.trim().to_owned(),
                columns.next().is_some_and(|peers| peers.trim() != "–"),
            ))
        })
        .collect();
    let wanted: Vec<_> = table::items()
        .iter()
        .map(|item| (item.number, item.subject.to_owned(), item.peers_differ))
        .collect();
    for (have, want) in documented.iter().zip(&wanted) {
        assert_eq!(have, want, "number, subject, whether others do otherwise");
    }
    assert_eq!(documented.len(), wanted.len());
}
