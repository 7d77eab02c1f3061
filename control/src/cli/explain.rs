//! `windrose explain`: why a client gets an answer, from the running appliance's own engine.
//!
//! Exit code 0; 1 when the question cannot be explained; 2 when no appliance answers.

use super::{print_json, report};
use crate::admin::api::{ClientSource, ExplainRequest, Explanation, SiteStep};
use crate::admin::client;
use crate::policy::chain::tell::time;
use hyper::Method;
use ipnet::IpNet;
use std::fmt::Write;
use std::net::IpAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// Explain why a client gets the answer that it gets.
#[derive(clap::Args, Debug)]
pub(super) struct Args {
    /// The name asked for.
    name: String,
    /// The RR type asked for.
    #[arg(value_name = "TYPE", default_value = "A")]
    rtype: String,
    /// Source address of the query: the client's or its resolver's.
    #[arg(long, value_name = "ADDR")]
    from: IpAddr,
    /// Client subnet in the query (RFC 7871), such as 203.0.113.0/24.
    #[arg(long, value_name = "PREFIX")]
    ecs: Option<IpNet>,
    /// Admin socket of the appliance.
    #[arg(long, value_name = "PATH", default_value = client::DEFAULT_SOCKET)]
    socket: PathBuf,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

impl Args {
    pub(super) fn execute(self) -> ExitCode {
        let (socket, json) = (self.socket.clone(), self.json);
        let shown = client::request(&socket, Method::GET, &self.path_and_query()).and_then(|body| {
            if json {
                return print_json(&socket, &body);
            }
            print!("{}", render(&client::parse(&socket, &body)?));
            Ok(())
        });
        report(shown)
    }

    fn path_and_query(self) -> String {
        let request = ExplainRequest {
            name: self.name,
            rtype: self.rtype,
            from: self.from,
            ecs: self.ecs,
        };
        let query = serde_urlencoded::to_string(request).expect("a flat structure of texts");
        format!("/v1/explain?{query}")
    }
}

/// Metric column, characters.
const METRIC_WIDTH: usize = 19;

/// What a metric found of a site: "96 ms from 80 flows, 3 s old; dropped: over 38 ms + 10%".
fn found(site: &SiteStep) -> String {
    let age = |age| format!("{} old", time(Duration::from_secs_f64(age)));
    let age = site.age_s.filter(|age| *age >= 0.0).map(age);
    let read: Vec<String> = site.value.clone().into_iter().chain(age).collect();
    let became = match (site.kept, site.why.as_str()) {
        (true, why) => why.to_owned(),
        (false, "") => "dropped".to_owned(),
        (false, why) => format!("dropped: {why}"),
    };
    let parts = [read.join(", "), became];
    let parts: Vec<String> = parts.into_iter().filter(|part| !part.is_empty()).collect();
    parts.join("; ")
}

/// The explanation as text.
fn render(e: &Explanation) -> String {
    let mut out = String::new();
    let mut line = |label: &str, text: &str| _ = writeln!(out, "{label:<10}{text}");
    line("question", &e.question);
    let source = match e.client_source {
        ClientSource::Transport => "source address of the query",
        ClientSource::Ecs => "client subnet of the query",
    };
    line("client", &format!("{} ({source})", e.client));
    // Without a service nobody looked for a class.
    let class = match (&e.isp, &e.service) {
        (None, None) => e.class.clone(),
        (isp, _) => format!("{}, ISP {}", e.class, isp.as_deref().unwrap_or("unknown")),
    };
    line("class", &class);
    line("zone", e.zone.as_deref().unwrap_or("none of ours"));
    for (i, step) in e.path.iter().enumerate() {
        line(if i == 0 { "name" } else { "" }, step);
    }
    if let Some(service) = &e.service {
        line("service", service);
    }
    if let Some(policy) = &e.policy {
        line("policy", policy);
    }
    for (i, step) in e.steps.iter().enumerate() {
        let label = if i == 0 { "chain" } else { "" };
        let (before, after) = (step.before.len(), step.after.len());
        let told = |name: &str| step.sites.iter().any(|site| site.site == name);
        let gone: Vec<_> = step
            .before
            .iter()
            .filter(|c| !step.after.contains(c) && !told(c))
            .map(String::as_str)
            .collect();
        let mut text = format!("{:<METRIC_WIDTH$}{before} -> {after}", step.metric);
        if !step.text.is_empty() {
            let _ = write!(text, "  {}", step.text);
        }
        if !gone.is_empty() {
            let _ = write!(text, "; out: {}", gone.join(", "));
        }
        line(label, &text);
        let width = step.sites.iter().map(|site| site.site.len()).max().unwrap_or(0);
        for site in &step.sites {
            line("", &format!("  {:<width$}  {}", site.site, found(site)));
        }
    }
    let mut tiers = |label: &str, tiers: &[Vec<String>]| {
        for (i, tier) in tiers.iter().enumerate() {
            let label = if i == 0 { label } else { "" };
            line(label, &format!("{}: {}", i + 1, tier.join(", ")));
        }
    };
    tiers("tiers", &e.tiers);
    if let Some(explore) = &e.explore {
        tiers("explore", &explore.tiers);
        line("", &format!("tried by {} of the queries", explore.share));
    }
    if let Some(draw) = &e.draw {
        line("draw", draw);
    }
    let mut answer = e.rcode.clone();
    if matches!(e.outcome.as_str(), "nodata" | "referral") {
        let _ = write!(answer, " ({})", e.outcome);
    }
    if e.truncated {
        answer.push_str(", truncated: whole over TCP");
    }
    if let Some(ttl) = e.ttl {
        let _ = write!(answer, ", TTL {ttl}");
    }
    if let Some(scope) = e.scope {
        let _ = write!(answer, ", scope /{scope}");
    }
    line("answer", &format!("{answer}, generation {}", e.generation));
    for record in &e.answer {
        line("", record);
    }
    for (i, record) in e.authority.iter().enumerate() {
        line(if i == 0 { "authority" } else { "" }, record);
    }
    if let Some(error) = &e.extended_error {
        line("error", error);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admin::server::tests::sample_explanation;

    #[test]
    fn a_screen_for_people() {
        let expected = "\
question  vod.example.com. A
client    203.0.113.0/24 (client subnet of the query)
class     3, ISP KT
zone      example.com.
service   vod.example.com.
policy    health, isp, static weighted
chain     health             3 -> 2  failed checks; out: 198.51.100.9
          isp                2 -> 1  stands in KT; out: 192.0.2.1
tiers     1: 198.51.100.1
          2: 192.0.2.1
draw      weighted, 1 of 1
answer    NOERROR, TTL 30, scope /24, generation 7
          198.51.100.1
";
        assert_eq!(render(&sample_explanation()), expected);
    }

    #[test]
    fn readings_have_their_age_and_what_became_of_them() {
        let site = |value: Option<&str>, age_s, kept, why: &str| {
            found(&SiteStep {
                site: "tokyo".into(),
                value: value.map(str::to_owned),
                age_s,
                kept,
                why: why.into(),
            })
        };
        let value = Some("96 ms from 80 flows");
        assert_eq!(
            site(value, Some(3.2), false, "over 38 ms + 10%"),
            "96 ms from 80 flows, 3.2 s old; dropped: over 38 ms + 10%"
        );
        assert_eq!(
            site(value, Some(300.0), true, ""),
            "96 ms from 80 flows, 5 min old"
        );
        assert_eq!(site(None, None, true, "not measured"), "not measured");
        assert_eq!(site(Some("in KT"), None, false, ""), "in KT; dropped");
    }

    #[test]
    fn what_has_no_service_shows_how_the_name_was_found_and_what_is_missing() {
        let explanation = Explanation {
            isp: None,
            class: "not looked up: the answer is the same for all".into(),
            service: None,
            policy: None,
            steps: vec![],
            tiers: vec![],
            draw: None,
            path: vec!["delegated at child.example.com".into()],
            answer: vec![],
            authority: vec!["child.example.com. 300 NS ns.child.example.com.".into()],
            outcome: "referral".into(),
            ttl: Some(300),
            scope: None,
            extended_error: Some("Other (no member is up)".into()),
            ..sample_explanation()
        };
        let expected = "\
question  vod.example.com. A
client    203.0.113.0/24 (client subnet of the query)
class     not looked up: the answer is the same for all
zone      example.com.
name      delegated at child.example.com
answer    NOERROR (referral), TTL 300, generation 7
authority child.example.com. 300 NS ns.child.example.com.
error     Other (no member is up)
";
        assert_eq!(render(&explanation), expected);
        let truncated = Explanation {
            truncated: true,
            outcome: "answer".into(),
            ..explanation
        };
        assert!(render(&truncated).contains("answer    NOERROR, truncated: whole over TCP, TTL"));
    }

    #[test]
    fn the_query_is_encoded() {
        let args = Args {
            name: "a&b.example".into(),
            rtype: "AAAA".into(),
            from: "2001:db8::1".parse().unwrap(),
            ecs: Some("203.0.113.0/24".parse().unwrap()),
            socket: "/none".into(),
            json: false,
        };
        // RFC 3986 section 2.1 percent encoding, as HTML forms use it.
        let expected = "/v1/explain?name=a%26b.example&type=AAAA&from=2001%3Adb8%3A%3A1&ecs=203.0.113.0%2F24";
        assert_eq!(args.path_and_query(), expected);
    }
}
