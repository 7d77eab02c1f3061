//! How the engine came from the name asked for to what answers, in words. Called by [`super`].

use dataplane::stages::dns_answer::Event;
use dataplane::tables::names::{Names, Node};
use domain::base::Name;

/// One line for each step off the name itself.
pub(super) fn path(names: &Names, events: &[Event]) -> Vec<String> {
    let mut out = Vec::new();
    let mut renamed = false;
    for (at, event) in events.iter().enumerate() {
        match *event {
            Event::ClosestEncloser { node } => {
                let covered = matches!(events.get(at + 1), Some(Event::Wildcard { .. }));
                if let Some(text) = names.node(node).filter(|_| !covered).and_then(above) {
                    out.push(format!("{text} {}", name_of(names, node)));
                }
            }
            Event::Wildcard { node } => out.push(format!("covered by {}", name_of(names, node))),
            Event::Renamed => renamed = true,
            Event::Name { node, .. } if renamed => out.push(format!("leads to {}", name_of(names, node))),
            _ => {}
        }
    }
    out
}

/// What a name is whose closest encloser is this; `None` below no zone of ours.
fn above(node: &Node) -> Option<&'static str> {
    if node.has(Node::OUTSIDE) {
        None
    } else if node.has(Node::CUT) {
        Some("delegated at")
    } else if node.has(Node::DNAME) {
        Some("renamed by the DNAME at")
    } else {
        Some("not there; the closest name above it is")
    }
}

fn name_of(names: &Names, node: u32) -> String {
    let mut wire = Vec::new();
    names.name_of(node, &mut wire);
    Name::from_octets(wire).map_or_else(|_| "?".into(), |name| name.to_string())
}
