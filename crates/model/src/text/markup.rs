//! Text inside HTML, SVG and XML. Must never let a recording's text become markup, or a file that a parser refuses.

use std::borrow::Cow;

use super::terminal::{is_steering, visible};

/// Text as the content of an element or of a quoted attribute. Line ends and tabs stay; of the other control characters XML has no
/// way to write most, not even escaped, and changes of direction would reorder the text beside it: they are made visible.
#[must_use]
pub fn escape_markup(text: &str) -> Cow<'_, str> {
    let stays = |letter: char| match letter {
        '&' | '<' | '>' | '"' | '\'' | '\u{fffe}' | '\u{ffff}' => false,
        '\n' | '\t' => true,
        letter => !is_steering(letter),
    };
    let Some(first) = text.find(|letter| !stays(letter)) else { return Cow::Borrowed(text) };
    let mut escaped = String::with_capacity(text.len() + 16);
    escaped.push_str(&text[..first]);
    for letter in text[first..].chars() {
        match letter {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            '\u{fffe}' | '\u{ffff}' => escaped.push('\u{fffd}'),
            letter if stays(letter) => escaped.push(letter),
            letter => escaped.push(visible(letter)),
        }
    }
    Cow::Owned(escaped)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markup_in_text_stays_text() {
        assert_eq!(
            escape_markup("<a href='x' id=\"y\">&"),
            "&lt;a href=&#39;x&#39; id=&quot;y&quot;&gt;&amp;"
        );
        assert_eq!(escape_markup("a\x1b\n\tb\u{202e}\u{ffff}"), "a␛\n\tb\u{fffd}\u{fffd}");
        assert!(matches!(escape_markup("größe\n函数"), Cow::Borrowed(_)));
    }
}
