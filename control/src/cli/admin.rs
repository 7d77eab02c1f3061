//! `windrose admin`: overrides what health says of members, by glob.
//!
//! Exit code 0; 1 when the appliance refuses; 2 when none answers.

use super::status::{Table, seconds};
use super::{print_json, report};
use crate::admin::api::{ClearRequest, OverrideReport, OverrideRequest};
use crate::admin::client::{self, ClientError};
use crate::config::units;
use crate::overrides::Override;
use crate::state;
use hyper::Method;
use std::path::PathBuf;
use std::process::ExitCode;

/// Override what health says of members: take them out, put them in, drain them.
///
/// GLOB names members as SITE/ADDRESS, with * ? [..] {a,b}; * matches across the slash. Without a slash it is a whole
/// site, or an address wherever it is. Of several overrides that match a member the one set last counts; setting a glob
/// again replaces it. Overrides outlive a restart if `state` under [appliance] names a folder.
#[derive(clap::Args, Debug)]
pub(super) struct Args {
    #[command(subcommand)]
    command: Command,
    /// Admin socket of the appliance.
    #[arg(long, value_name = "PATH", default_value = client::DEFAULT_SOCKET, global = true)]
    socket: PathBuf,
    /// Print JSON.
    #[arg(long, global = true)]
    json: bool,
}

#[derive(clap::Subcommand, Debug)]
enum Command {
    /// Never give these members.
    Down(Set),
    /// Give these members whatever health says of them.
    Up(Set),
    /// Give these members only when no other is left.
    Drain(Set),
    /// Give these members less often: PERCENT of the times that they would be given.
    Weight {
        /// Which members: SITE/ADDRESS, SITE or ADDRESS.
        #[arg(value_name = "GLOB")]
        glob: String,
        /// 0 to 100, with or without %.
        #[arg(value_name = "PERCENT", value_parser = percent)]
        percent: u8,
        #[command(flatten)]
        how: How,
    },
    /// Show the overrides, in the order in which they count.
    List,
    /// End an override, or all of them.
    Clear {
        /// The glob of the override, as it was set.
        #[arg(value_name = "GLOB", required_unless_present = "all", conflicts_with = "all")]
        glob: Option<String>,
        /// All of them.
        #[arg(long)]
        all: bool,
    },
}

#[derive(clap::Args, Debug)]
struct Set {
    /// Which members: SITE/ADDRESS, SITE or ADDRESS.
    #[arg(value_name = "GLOB")]
    glob: String,
    #[command(flatten)]
    how: How,
}

#[derive(clap::Args, Debug)]
struct How {
    /// End it by itself after this time, as "90s", "30m" or "1h".
    #[arg(long = "for", value_name = "TIME", value_parser = seconds_of)]
    how_long: Option<u64>,
    /// Why; shown with the override.
    #[arg(long, value_name = "TEXT")]
    comment: Option<String>,
}

fn percent(text: &str) -> Result<u8, String> {
    let number: Option<u8> = text.trim_end_matches('%').parse().ok();
    number
        .filter(|n| *n <= 100)
        .ok_or_else(|| "a weight is a percentage from 0 to 100".to_owned())
}

fn seconds_of(text: &str) -> Result<u64, String> {
    let time = units::duration(text)?;
    match time.as_secs() {
        0 => Err("an override lasts at least 1s".into()),
        s => Ok(s),
    }
}

impl Args {
    pub(super) fn execute(self) -> ExitCode {
        report(self.ask())
    }

    fn ask(self) -> Result<(), ClientError> {
        let (glob, action, weight, how) = match self.command {
            Command::List => {
                let body = client::request(&self.socket, Method::GET, "/v1/overrides")?;
                if self.json {
                    return print_json(&self.socket, &body);
                }
                print!("{}", list(&client::parse::<Vec<Override>>(&self.socket, &body)?));
                return Ok(());
            }
            Command::Clear { glob, .. } => {
                let path = with_query("/v1/overrides", &ClearRequest { glob });
                let body = client::request(&self.socket, Method::DELETE, &path)?;
                if self.json {
                    return print_json(&self.socket, &body);
                }
                for over in client::parse::<Vec<Override>>(&self.socket, &body)? {
                    println!("cleared: {over}");
                }
                return Ok(());
            }
            Command::Down(set) => (set.glob, "down", None, set.how),
            Command::Up(set) => (set.glob, "up", None, set.how),
            Command::Drain(set) => (set.glob, "drain", None, set.how),
            Command::Weight { glob, percent, how } => (glob, "weight", Some(percent), how),
        };
        let request = OverrideRequest {
            glob,
            action: action.into(),
            weight,
            for_s: how.how_long,
            comment: how.comment,
        };
        let path = with_query("/v1/overrides", &request);
        let body = client::request(&self.socket, Method::POST, &path)?;
        if self.json {
            return print_json(&self.socket, &body);
        }
        let done: OverrideReport = client::parse(&self.socket, &body)?;
        let ends = match request.for_s {
            Some(s) => format!(", ends in {}", seconds(s as f64)),
            None => String::new(),
        };
        println!("{}: {} members{ends}", done.set, done.members);
        if done.members == 0 {
            eprintln!("warning: no member has a SITE/ADDRESS like that now; it counts for members to come");
        }
        Ok(())
    }
}

fn with_query(path: &str, query: &impl serde::Serialize) -> String {
    let query = serde_urlencoded::to_string(query).unwrap_or_default();
    if query.is_empty() {
        path.to_owned()
    } else {
        format!("{path}?{query}")
    }
}

fn list(overrides: &[Override]) -> String {
    if overrides.is_empty() {
        return "no overrides\n".into();
    }
    let now = state::now().as_secs();
    let mut table = Table::new(&["OVERRIDE", "ACTION", ">SET", ">ENDS", "COMMENT"]);
    table.heading_gap = false;
    super::status::override_rows(&mut table, overrides, now);
    let mut out = String::new();
    table.print(&mut out);
    out
}
