//! What an item of the matrix is made of. Called by the table, which fills items, and by the test, which shows them.

use super::World;
use super::world::Setting;
use anyhow::Result;
use windrose_tests::message::Query;

/// Shows something that one question and its reply cannot.
pub(crate) type Show = fn(&mut World) -> Result<()>;

/// Where a row is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Over {
    Both,
    Udp,
    Tcp,
}

/// A question and what must come, as [`windrose_tests::message::Reply::line`] writes it. A line that ends in `..` is the start of
/// what must come; `nothing` and `end` (of the TCP connection) are no reply.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub(crate) query: Query,
    pub(crate) over: Over,
    pub(crate) want: String,
    /// `None`: in the usual setting, and under guard.
    pub(crate) setting: Option<Setting>,
}

/// One item.
#[derive(Clone, Debug)]
pub(crate) struct Item {
    pub(crate) number: u32,
    pub(crate) subject: &'static str,
    /// Shipped servers decide it differently from each other, or from this one.
    pub(crate) peers_differ: bool,
    pub(crate) rows: Vec<Row>,
    /// By name, in which setting, and how.
    pub(crate) shown: Vec<(Setting, Show)>,
    /// A frame and what becomes of it; asked through a raw socket.
    pub(crate) frames: Vec<super::frames::Case>,
    /// Tests elsewhere that show (more of) it: file and function.
    pub(crate) elsewhere: Vec<(&'static str, &'static str)>,
}

/// An item without rows yet.
pub(crate) fn item(number: u32, subject: &'static str) -> Item {
    Item {
        number,
        subject,
        peers_differ: false,
        rows: Vec::new(),
        shown: Vec::new(),
        frames: Vec::new(),
        elsewhere: Vec::new(),
    }
}

impl Item {
    /// Marks an item that other servers decide otherwise.
    pub(crate) fn peers_differ(mut self) -> Self {
        self.peers_differ = true;
        self
    }

    fn add(mut self, query: Query, over: Over, want: impl Into<String>) -> Self {
        self.rows.push(Row {
            query,
            over,
            want: want.into(),
            setting: None,
        });
        self
    }

    /// The same over UDP and TCP.
    pub(crate) fn row(self, query: Query, want: impl Into<String>) -> Self {
        self.add(query, Over::Both, want)
    }

    /// Over UDP, and over TCP.
    pub(crate) fn rows(self, query: &Query, udp: impl Into<String>, tcp: impl Into<String>) -> Self {
        self.add(query.clone(), Over::Udp, udp)
            .add(query.clone(), Over::Tcp, tcp)
    }

    /// The last row is for one setting alone.
    pub(crate) fn only(mut self, setting: Setting) -> Self {
        if let Some(row) = self.rows.last_mut() {
            row.setting = Some(setting);
        }
        self
    }

    /// Every query gets the same.
    pub(crate) fn each(self, queries: impl IntoIterator<Item = Query>, want: &str) -> Self {
        queries
            .into_iter()
            .fold(self, |item, query| item.row(query, want))
    }

    pub(crate) fn show(mut self, setting: Setting, how: Show) -> Self {
        self.shown.push((setting, how));
        self
    }

    pub(crate) fn frame(mut self, case: super::frames::Case) -> Self {
        self.frames.push(case);
        self
    }

    pub(crate) fn elsewhere(mut self, file: &'static str, functions: &[&'static str]) -> Self {
        self.elsewhere
            .extend(functions.iter().map(|function| (file, *function)));
        self
    }
}
