//! Masks what must not be shown in quoted source lines: the value of `token`, and of a `secret` that somebody
//! writes here although it belongs into a file of its own. Works on the text, not
//! on parsed TOML, since errors are shown of text that does not parse as well.

/// Keys whose values are masked.
const KEYS: [&str; 2] = ["token", "secret"];

/// `text` with every value of such a key replaced by `*`, byte for byte, so that places stay.
pub(crate) fn mask(text: &str) -> String {
    KEYS.iter()
        .fold(text.to_owned(), |text, key| mask_key(&text, key))
}

fn mask_key(text: &str, key: &str) -> String {
    let mut masked = text.as_bytes().to_vec();
    let mut from = 0;
    while let Some(found) = text[from..].find(key) {
        let after_key = from + found + key.len();
        from = after_key;
        let rest = text[after_key..].trim_start_matches(['"', '\'', ' ', '\t']);
        let Some(value) = rest.strip_prefix('=') else {
            continue;
        };
        let value = value.trim_start_matches([' ', '\t']);
        let start = text.len() - value.len();
        let fence = ["\"\"\"", "'''"]
            .into_iter()
            .find(|fence| value.starts_with(fence));
        let length = match fence {
            // Up to the closing fence, or the end of the file without one.
            Some(fence) => value[3..].find(fence).map_or(value.len(), |at| at + 6),
            None => value.find('\n').unwrap_or(value.len()),
        };
        for byte in &mut masked[start..start + length] {
            if *byte != b'\n' && *byte != b'\r' {
                *byte = b'*';
            }
        }
        from = start + length;
    }
    // Masks cover whole characters: they begin and end at ASCII.
    String::from_utf8_lossy(&masked).into_owned()
}

#[cfg(test)]
mod tests {
    use super::mask;

    #[test]
    fn token_values_are_masked_in_place() {
        assert_eq!(
            mask("[admin]\ntoken = \"s3cret\"\nx = 1\n"),
            "[admin]\ntoken = ********\nx = 1\n"
        );
        assert_eq!(mask("admin.\"token\"=é"), "admin.\"token\"=**");
        assert_eq!(mask("token = \"\"\"a\nb\"\"\" # c\n"), "token = ****\n**** # c\n");
        assert_eq!(mask("token = '''a\nb\n"), "token = ****\n*\n");
        assert_eq!(
            mask("secret = \"ab\"\nsecret_file = \"f\"\n"),
            "secret = ****\nsecret_file = \"f\"\n"
        );
        assert_eq!(mask("tokens are nice"), "tokens are nice");
    }
}
