//! The words of a command line, without a shell: split where a user typed them, quoted where they are shown.

use std::borrow::Cow;

/// Why a text has no words.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum WordsError {
    /// A quotation mark or a backslash at the end.
    #[error("the command has an unclosed quotation mark")]
    Quotes,
    /// Nothing but blanks.
    #[error("the command is empty")]
    Empty,
}

/// The words of a command line: split at white space, with `'…'`, `"…"` and `\`. No variables, no patterns: there is no shell.
pub fn split_words(text: &str) -> Result<Vec<String>, WordsError> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quote: Option<char> = None;
    let mut characters = text.chars();
    while let Some(next) = characters.next() {
        match (quote, next) {
            (None, '\'' | '"') => {
                quote = Some(next);
                word.get_or_insert_default();
            }
            (Some(open), _) if next == open => quote = None,
            (None | Some('"'), '\\') => {
                word.get_or_insert_default().push(characters.next().ok_or(WordsError::Quotes)?);
            }
            (None, space) if space.is_whitespace() => words.extend(word.take()),
            _ => word.get_or_insert_default().push(next),
        }
    }
    if quote.is_some() {
        return Err(WordsError::Quotes);
    }
    words.extend(word);
    if words.is_empty() { Err(WordsError::Empty) } else { Ok(words) }
}

/// The words as a line that a POSIX shell splits into the same words.
#[must_use]
pub fn command_line<Word: AsRef<str>>(words: &[Word]) -> String {
    let words: Vec<Cow<'_, str>> = words.iter().map(|word| quoted(word.as_ref())).collect();
    words.join(" ")
}

fn quoted(word: &str) -> Cow<'_, str> {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "_-./:=,+@%".contains(letter);
    match !word.is_empty() && word.chars().all(is_plain) {
        true => Cow::Borrowed(word),
        false => Cow::Owned(format!("'{}'", word.replace('\'', r"'\''"))),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
mod tests {
    use super::*;

    #[test]
    fn words_are_split_as_a_shell_would_without_its_substitutions() {
        let split = |text| split_words(text).unwrap();
        assert_eq!(
            split("mail -s 'out of memory' you@example"),
            ["mail", "-s", "out of memory", "you@example"]
        );
        assert_eq!(split(r#"a "b \"c\" $X" d\ e ''"#), ["a", "b \"c\" $X", "d e", ""]);
        assert_eq!(split_words("'open"), Err(WordsError::Quotes));
        assert_eq!(split_words("end\\"), Err(WordsError::Quotes));
        assert_eq!(split_words("  "), Err(WordsError::Empty));
    }

    #[test]
    fn shown_command_line_splits_into_the_same_words() {
        let words = ["run", "--dir", "my runs", "", "it's", "$HOME;rm *", "a=b"];
        let line = command_line(&words);
        assert_eq!(line, r"run --dir 'my runs' '' 'it'\''s' '$HOME;rm *' a=b");
        assert_eq!(split_words(&line).unwrap(), words);
    }
}
