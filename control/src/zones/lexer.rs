//! Cuts a zone file into entries and tokens (RFC 1035 section 5.1): comments, parentheses, quotes and
//! escapes. Called by `master`; keeps nothing but offsets into the file.
//!
//! Tokens are ours rather than the `domain` crate's zone file reader, since that one gives no place
//! for most errors, stops at the first, reads no `@` in RDATA, and asserts on some malformed input.

/// One word of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Token {
    /// Where it starts in the file, without an opening quote.
    pub(crate) start: usize,
    /// Where it ends, without a closing quote.
    pub(crate) end: usize,
    /// Whether it stood in quotes.
    pub(crate) quoted: bool,
    /// Whether it follows the token before it with nothing between (`alpn="h2"`).
    pub(crate) glued: bool,
}

/// What is wrong with the text itself, and where.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LexError {
    pub(crate) at: usize,
    pub(crate) message: &'static str,
}

/// Reads entries, one after another.
pub(crate) struct Lexer<'a> {
    text: &'a [u8],
    at: usize,
}

impl<'a> Lexer<'a> {
    pub(crate) fn new(text: &'a [u8]) -> Self {
        // A byte order mark that an editor left is no part of the first name.
        let at = if text.starts_with(b"\xef\xbb\xbf") { 3 } else { 0 };
        Self { text, at }
    }

    /// Reads the next entry that has tokens into `tokens`. Returns whether it begins with white space
    /// (so that its owner is the last one), or `None` at the end. After an error the next call goes on
    /// with the next line.
    pub(crate) fn next_entry(&mut self, tokens: &mut Vec<Token>) -> Option<Result<bool, LexError>> {
        loop {
            tokens.clear();
            let indented = matches!(self.text.get(self.at)?, b' ' | b'\t');
            match self.entry(tokens) {
                Err(error) => {
                    self.skip_line();
                    return Some(Err(error));
                }
                Ok(()) if tokens.is_empty() => {}
                Ok(()) => return Some(Ok(indented)),
            }
        }
    }

    fn skip_line(&mut self) {
        let rest = &self.text[self.at..];
        self.at += rest
            .iter()
            .position(|&byte| byte == b'\n')
            .map_or(rest.len(), |at| at + 1);
    }

    /// Reads tokens up to the end of the entry: a line feed outside parentheses, or the end of the file.
    fn entry(&mut self, tokens: &mut Vec<Token>) -> Result<(), LexError> {
        let mut open: Vec<usize> = Vec::new();
        while let Some(&byte) = self.text.get(self.at) {
            match byte {
                b'\n' => {
                    self.at += 1;
                    if open.is_empty() {
                        return Ok(());
                    }
                }
                b' ' | b'\t' | b'\r' => self.at += 1,
                b';' => {
                    let rest = &self.text[self.at..];
                    self.at += rest.iter().position(|&byte| byte == b'\n').unwrap_or(rest.len());
                }
                b'(' => {
                    open.push(self.at);
                    self.at += 1;
                }
                b')' => {
                    let at = self.at;
                    self.at += 1;
                    open.pop().ok_or(LexError {
                        at,
                        message: "`)` without a `(` before it",
                    })?;
                }
                _ => {
                    let token = self.token(tokens.last())?;
                    tokens.push(token);
                }
            }
        }
        match open.pop() {
            Some(at) => Err(LexError {
                at,
                message: "this `(` is never closed",
            }),
            None => Ok(()),
        }
    }

    fn token(&mut self, last: Option<&Token>) -> Result<Token, LexError> {
        let opening = self.at;
        let quoted = self.text[opening] == b'"';
        let glued = last.is_some_and(|last| last.end + usize::from(last.quoted) == opening);
        self.at += usize::from(quoted);
        let start = self.at;
        loop {
            match (self.text.get(self.at), quoted) {
                (Some(b'\\'), _) => self.escape()?,
                (Some(b'"'), true) => {
                    self.at += 1;
                    return Ok(Token {
                        start,
                        end: self.at - 1,
                        quoted,
                        glued,
                    });
                }
                (Some(b'\n') | None, true) => {
                    return Err(LexError {
                        at: opening,
                        message: "this string is not closed on its line",
                    });
                }
                (Some(b' ' | b'\t' | b'\r' | b'\n' | b'(' | b')' | b';' | b'"') | None, false) => {
                    return Ok(Token {
                        start,
                        end: self.at,
                        quoted,
                        glued,
                    });
                }
                (Some(_), _) => self.at += 1,
            }
        }
    }

    /// Steps over `\X` or `\DDD` (0 to 255).
    fn escape(&mut self) -> Result<(), LexError> {
        let at = self.at;
        match self.text.get(at + 1) {
            None | Some(b'\n') => Err(LexError {
                at,
                message: "`\\` with nothing to escape",
            }),
            Some(b'0'..=b'9') => {
                let digits = self
                    .text
                    .get(at + 1..at + 4)
                    .filter(|d| d.iter().all(u8::is_ascii_digit));
                let value = digits.and_then(|d| std::str::from_utf8(d).ok()?.parse::<u16>().ok());
                if value.is_none_or(|value| value > 255) {
                    return Err(LexError {
                        at,
                        message: "a decimal escape is `\\` and three digits, 000 to 255",
                    });
                }
                self.at += 4;
                Ok(())
            }
            Some(_) => {
                self.at += 2;
                Ok(())
            }
        }
    }
}

/// The octets of a token, escapes resolved: each with whether it was escaped.
pub(crate) fn octets(mut text: &[u8]) -> impl Iterator<Item = (u8, bool)> {
    std::iter::from_fn(move || match text {
        // The lexer checked that escapes are whole.
        [
            b'\\',
            h @ b'0'..=b'9',
            t @ b'0'..=b'9',
            u @ b'0'..=b'9',
            rest @ ..,
        ] => {
            text = rest;
            let value = u16::from(h - b'0') * 100 + u16::from(t - b'0') * 10 + u16::from(u - b'0');
            Some((value as u8, true))
        }
        [b'\\', byte, rest @ ..] => {
            text = rest;
            Some((*byte, true))
        }
        [byte, rest @ ..] => {
            text = rest;
            Some((*byte, false))
        }
        [] => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entries(text: &str) -> Vec<Result<(bool, Vec<String>), LexError>> {
        let mut lexer = Lexer::new(text.as_bytes());
        let mut tokens = Vec::new();
        let mut all = Vec::new();
        while let Some(entry) = lexer.next_entry(&mut tokens) {
            let words = tokens.iter().map(|t| text[t.start..t.end].to_owned()).collect();
            all.push(entry.map(|indented| (indented, words)));
        }
        all
    }

    #[test]
    fn entries_span_lines_in_parentheses_only() {
        let found = entries("a b ; c\n\n  d ( e ; (\n f) g\nh");
        let word = |words: &[&str]| words.iter().map(|w| (*w).to_owned()).collect::<Vec<_>>();
        assert_eq!(
            found,
            [
                Ok((false, word(&["a", "b"]))),
                Ok((true, word(&["d", "e", "f", "g"]))),
                Ok((false, word(&["h"])))
            ]
        );
    }

    #[test]
    fn text_errors_have_their_place_and_reading_goes_on() {
        let found = entries("a \"b\nc )\nd \\999\ne\nf ( g\n");
        let at = |index: usize| found[index].as_ref().err().map(|error| error.at);
        assert_eq!(at(0), Some(2));
        assert_eq!(at(1), Some(7));
        assert_eq!(at(2), Some(11));
        assert!(found[3].is_ok());
        assert_eq!(at(4), Some(20));
        assert_eq!(found.len(), 5);
    }

    #[test]
    fn escapes_and_quotes() {
        let octets = |text: &str| octets(text.as_bytes()).collect::<Vec<_>>();
        assert_eq!(octets(r"a\.\065"), [(b'a', false), (b'.', true), (b'A', true)]);
        let mut tokens = Vec::new();
        Lexer::new(b"k=\"v \\\" ;\" x")
            .next_entry(&mut tokens)
            .unwrap()
            .unwrap();
        assert_eq!(tokens.len(), 3);
        assert!(tokens[1].glued && tokens[1].quoted && !tokens[2].glued);
    }
}
