//! What is wrong with a configuration, and where: [`Diagnostics`], printed as compilers print theirs.
//! Made by `config` and `zones`; shown by `windrose check`, `windrose run` and the reload.

use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Longest source line that is shown, characters; longer ones are cut around the place.
const SHOWN_LINE_MAX: usize = 160;

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// The configuration is not taken.
    Error,
    /// It is taken, and likely not meant.
    Warning,
}

/// One finding. Lines and columns count from 1; columns count characters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostic {
    /// How bad it is.
    pub severity: Severity,
    /// File it is in.
    pub file: PathBuf,
    /// Line, from 1; 0 if it concerns the whole file.
    pub line: usize,
    /// Column in characters, from 1; 0 if it concerns the whole file.
    pub column: usize,
    /// What is wrong.
    pub message: String,
    /// What to do, if there is something to say.
    pub help: Option<String>,
    /// The source line, secrets masked, and how many of its characters are meant.
    snippet: Option<(String, usize)>,
}

impl Diagnostic {
    /// A finding about a file as a whole (it cannot be read, for example).
    pub fn file(severity: Severity, file: &Path, message: impl Into<String>) -> Self {
        let file = file.to_path_buf();
        Self {
            severity,
            file,
            line: 0,
            column: 0,
            message: message.into(),
            help: None,
            snippet: None,
        }
    }

    /// Adds what to do about it.
    pub fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let severity = match self.severity {
            Severity::Error => "error",
            Severity::Warning => "warning",
        };
        let file = self.file.display();
        if self.line == 0 {
            write!(f, "{file}: {severity}: {}", self.message)?;
        } else {
            write!(
                f,
                "{file}:{}:{}: {severity}: {}",
                self.line, self.column, self.message
            )?;
        }
        if let Some((text, width)) = &self.snippet {
            let (shown, column) = cut(text, self.column);
            let number = self.line.to_string();
            let margin = " ".repeat(number.len());
            // Tabs stay tabs under the line, so that the caret stands right at any tab width.
            let indent: String = shown
                .chars()
                .take(column - 1)
                .map(|c| if c == '\t' { '\t' } else { ' ' })
                .collect();
            let room = shown.chars().count().saturating_sub(column - 1).max(1);
            let caret = "^".repeat((*width).clamp(1, room));
            write!(
                f,
                "\n {margin} |\n {number} | {shown}\n {margin} | {indent}{caret}"
            )?;
        }
        if let Some(help) = &self.help {
            write!(f, "\n   = help: {help}")?;
        }
        Ok(())
    }
}

/// The part of a long line around `column`, and the column therein.
fn cut(line: &str, column: usize) -> (String, usize) {
    if line.chars().count() <= SHOWN_LINE_MAX {
        return (line.to_owned(), column);
    }
    let skipped = column.saturating_sub(SHOWN_LINE_MAX / 2);
    let part = line.chars().skip(skipped).take(SHOWN_LINE_MAX).collect();
    (part, column - skipped)
}

/// Every finding of one load. An error in itself when it holds errors.
#[derive(Clone, Debug, Default)]
pub struct Diagnostics {
    list: Vec<Diagnostic>,
}

impl Diagnostics {
    /// Adds one.
    pub fn push(&mut self, diagnostic: Diagnostic) {
        self.list.push(diagnostic);
    }

    /// Adds all of another.
    pub(crate) fn append(&mut self, mut other: Self) {
        self.list.append(&mut other.list);
    }

    /// Every finding, in the order of files and lines.
    pub fn iter(&self) -> impl Iterator<Item = &Diagnostic> {
        self.list.iter()
    }

    /// Whether any of them is an error.
    pub fn has_errors(&self) -> bool {
        self.list
            .iter()
            .any(|diagnostic| diagnostic.severity == Severity::Error)
    }

    /// How many errors and how many warnings there are.
    pub fn counts(&self) -> (usize, usize) {
        let errors = self.list.iter().filter(|d| d.severity == Severity::Error).count();
        (errors, self.list.len() - errors)
    }

    /// Orders them by place; findings of one file stay together, in the order in which files came.
    pub(crate) fn sort(&mut self) {
        let mut files: Vec<PathBuf> = Vec::new();
        for diagnostic in &self.list {
            if !files.contains(&diagnostic.file) {
                files.push(diagnostic.file.clone());
            }
        }
        let rank = |d: &Diagnostic| files.iter().position(|file| *file == d.file);
        self.list.sort_by_key(|d| (rank(d), d.line, d.column));
    }
}

impl fmt::Display for Diagnostics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, diagnostic) in self.list.iter().enumerate() {
            if index > 0 {
                writeln!(f)?;
            }
            write!(f, "{diagnostic}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Diagnostics {}

/// A file's text, which turns byte ranges into places.
pub(crate) struct Source {
    /// Where it came from.
    pub(crate) path: PathBuf,
    /// What it says, secrets masked byte for byte: only this is ever shown.
    shown: Arc<Vec<u8>>,
}

impl Source {
    /// Keeps `shown` as the text to quote from; it has the length of the file.
    pub(crate) fn new(path: &Path, shown: Arc<Vec<u8>>) -> Self {
        Self {
            path: path.to_path_buf(),
            shown,
        }
    }

    /// The text that may be shown.
    pub(crate) fn text(&self) -> &[u8] {
        &self.shown
    }

    /// Line and column of a byte offset, from 1.
    pub(crate) fn place(&self, offset: usize) -> (usize, usize) {
        let before = &self.shown[..offset.min(self.shown.len())];
        let line_start = before.iter().rposition(|&b| b == b'\n').map_or(0, |at| at + 1);
        let line = before.iter().filter(|&&b| b == b'\n').count() + 1;
        let column = String::from_utf8_lossy(&before[line_start..]).chars().count() + 1;
        (line, column)
    }

    /// A finding at a byte range.
    pub(crate) fn at(&self, severity: Severity, span: Range<usize>, message: String) -> Diagnostic {
        let start = span.start.min(self.shown.len());
        let (line, column) = self.place(start);
        let line_start = self.shown[..start]
            .iter()
            .rposition(|&b| b == b'\n')
            .map_or(0, |at| at + 1);
        let line_end = self.shown[start..]
            .iter()
            .position(|&b| b == b'\n')
            .map_or(self.shown.len(), |at| start + at);
        let text = String::from_utf8_lossy(&self.shown[line_start..line_end]).into_owned();
        let end = span.end.clamp(start, line_end);
        let width = String::from_utf8_lossy(&self.shown[start..end]).chars().count();
        let snippet = Some((text.trim_end_matches('\r').to_owned(), width));
        Diagnostic {
            severity,
            file: self.path.clone(),
            line,
            column,
            message,
            help: None,
            snippet,
        }
    }
}

/// The one of `known` that `word` was likely meant to be, as help text.
pub(crate) fn suggestion<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<String> {
    let lower = word.to_lowercase();
    // Jaro-Winkler sees shared beginnings; short words need the count of edits.
    let edits_max = (lower.chars().count() / 3).max(1);
    known
        .into_iter()
        .map(|candidate| (candidate.to_lowercase(), candidate))
        .filter(|(known, _)| {
            strsim::jaro_winkler(&lower, known) > 0.8 || strsim::osa_distance(&lower, known) <= edits_max
        })
        .max_by(|a, b| strsim::jaro_winkler(&lower, &a.0).total_cmp(&strsim::jaro_winkler(&lower, &b.0)))
        .map(|(_, candidate)| format!("did you mean `{candidate}`?"))
}
