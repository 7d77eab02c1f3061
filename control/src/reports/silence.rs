//! The rule for silent sites. Asked by whoever turns facts into site shares; pure.

use crate::config::model::{Config, OnSilence, Service};
use crate::policy::chain::Facts;

/// Whether `service` gives members of the site with index `site` only when no other is left, because the site is
/// silent and the rule says so: the service's own `on_silence`, else the site's.
///
/// Never when all sites that are to report are silent: then it is the reports that fail, not the sites.
pub fn is_avoided(config: &Config, facts: &Facts, service: &Service, site: usize) -> bool {
    let Some(of_site) = config.sites.get(site) else {
        return false;
    };
    let rule = service.on_silence.unwrap_or(of_site.on_silence);
    let silent = |site: usize| facts.sites.get(site).is_some_and(|facts| facts.silent);
    rule == OnSilence::Avoid && silent(site) && !is_feed_down(config, facts)
}

/// Whether sites are to report and every one of them is silent.
pub fn is_feed_down(config: &Config, facts: &Facts) -> bool {
    let mut reporting = config
        .sites
        .iter()
        .zip(&facts.sites)
        .filter(|(site, _)| !site.tokens.is_empty())
        .peekable();
    reporting.peek().is_some() && reporting.all(|(_, facts)| facts.silent)
}
