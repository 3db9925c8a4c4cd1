//! Text that cannot command a terminal: control characters, and those that turn or hide the text around them, are made visible.
//!
//! Must never let one of [`STEERING`] through.

use std::borrow::Cow;
use std::ops::RangeInclusive;

/// Characters that act on the text around them instead of being text: C0 and C1 controls, zero-width characters, line and
/// paragraph separators, changes of direction, invisible operators and the byte-order mark.
pub const STEERING: [RangeInclusive<char>; 7] = [
    '\0'..='\u{1f}',
    '\u{7f}'..='\u{9f}',
    '\u{61c}'..='\u{61c}',
    '\u{200b}'..='\u{200f}',
    '\u{2028}'..='\u{202e}',
    '\u{2060}'..='\u{206f}',
    '\u{feff}'..='\u{feff}',
];

/// Characters of a name that are kept at its beginning and at its end.
const LONGEST: (usize, usize) = (300, 100);

/// Whether a character acts on the text around it.
#[must_use]
pub fn is_steering(letter: char) -> bool {
    // Most text is ASCII, and this runs for every character of every page.
    match letter {
        ' '..='~' => false,
        letter => STEERING.iter().any(|range| range.contains(&letter)),
    }
}

/// What is shown in place of a steering character. Unicode has a picture for each of the C0 controls.
#[must_use]
pub fn visible(letter: char) -> char {
    match u32::from(letter) {
        code @ 0..0x20 => char::from_u32(0x2400 + code).unwrap_or('\u{fffd}'),
        0x7f => '\u{2421}',
        _ if is_steering(letter) => '\u{fffd}',
        _ => letter,
    }
}

/// Text on one line: everything that steers is visible, line ends too.
#[must_use]
pub fn inert_text(text: &str) -> Cow<'_, str> {
    if !text.contains(is_steering) {
        return Cow::Borrowed(text);
    }
    Cow::Owned(text.chars().map(visible).collect())
}

/// Text of several lines: as [`inert_text`], but line ends stay.
#[must_use]
pub fn inert_lines(text: &str) -> Cow<'_, str> {
    let is_unsafe = |letter: char| letter != '\n' && is_steering(letter);
    if !text.contains(is_unsafe) {
        return Cow::Borrowed(text);
    }
    Cow::Owned(text.chars().map(|letter| if letter == '\n' { letter } else { visible(letter) }).collect())
}

/// A name of a function, a file or a program on one line. One that would fill the screen loses its middle.
#[must_use]
pub fn short_name(name: &str) -> String {
    let (first, last) = LONGEST;
    if let Some((cut, _)) = name.char_indices().nth(first + last + 1) {
        let start = name[..cut].char_indices().nth(first).map_or(cut, |(at, _)| at);
        let end = name.char_indices().nth_back(last - 1).map_or(start, |(at, _)| at);
        return inert_text(&format!("{}…{}", &name[..start], &name[end..])).into_owned();
    }
    inert_text(name).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_and_direction_characters_become_visible() {
        let hostile = "a\x1b]0;owned\x07b\u{9b}2Jc\u{202e}d\ne\x7f\u{61c}\u{206a}";
        assert_eq!(inert_text(hostile), "a␛]0;owned␇b\u{fffd}2Jc\u{fffd}d␊e␡\u{fffd}\u{fffd}");
        assert_eq!(inert_text("naïve 函数 größe→"), "naïve 函数 größe→");
        assert!(matches!(inert_text("plain"), Cow::Borrowed(_)));
    }

    #[test]
    fn lines_keep_their_ends_only() {
        assert_eq!(inert_lines("a\x1b[31m\tb\r\nç\u{202e}d"), "a␛[31m␉b␍\nç\u{fffd}d");
        assert!(matches!(inert_lines("one\ntwo"), Cow::Borrowed(_)));
    }

    #[test]
    fn every_control_character_of_unicode_is_steering() {
        for letter in '\0'..=char::MAX {
            assert!(!letter.is_control() || is_steering(letter), "{letter:?}");
            assert!(!is_steering(visible(letter)), "{letter:?}");
        }
    }

    #[test]
    fn long_names_lose_their_middle() {
        let long = short_name(&format!("{}.py:12", "ö".repeat(10_000)));
        assert_eq!(long.chars().count(), 401);
        assert!(long.starts_with("öö") && long.ends_with("ö.py:12"));
        assert_eq!(short_name("\x1b[31mred\x07\r\n"), "␛[31mred␇␍␊");
    }
}
