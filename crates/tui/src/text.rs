//! Text of other programs made safe and short for a screen: no control character, no change of direction gets through.

use std::borrow::Cow;
use std::sync::OnceLock;

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// Longest name kept; longer ones are cut.
const LONGEST: usize = 512;

/// The text with everything that could steer a terminal made visible instead.
pub(crate) fn clean(text: &str) -> Cow<'_, str> {
    if text.len() <= LONGEST && !text.chars().any(steers) {
        return Cow::Borrowed(text);
    }
    Cow::Owned(
        text.chars()
            .take(LONGEST)
            .map(|letter| if steers(letter) { picture(letter) } else { letter })
            .collect(),
    )
}

fn steers(letter: char) -> bool {
    letter.is_control()
        || matches!(letter, '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
}

/// Unicode has a picture for each of the old control characters.
fn picture(letter: char) -> char {
    match u32::from(letter) {
        code @ 0..0x20 => char::from_u32(0x2400 + code).unwrap_or('\u{fffd}'),
        0x7f => '\u{2421}',
        _ => '\u{fffd}',
    }
}

/// Columns a text takes.
pub(crate) fn width(text: &str) -> usize {
    text.width()
}

/// The beginning of a text in at most `most` columns.
pub(crate) fn fit(text: &str, most: usize) -> Cow<'_, str> {
    if width(text) <= most {
        return Cow::Borrowed(text);
    }
    let mut left = most.saturating_sub(1);
    let kept = text.chars().take_while(|letter| take(&mut left, *letter));
    let mut short: String = kept.collect();
    if most > 0 {
        short.push('…');
    }
    Cow::Owned(short)
}

/// The end of a text in at most `most` columns: of a path the end matters.
pub(crate) fn fit_end(text: &str, most: usize) -> Cow<'_, str> {
    if width(text) <= most {
        return Cow::Borrowed(text);
    }
    let mut left = most.saturating_sub(1);
    let start = text.char_indices().rev().take_while(|(_, letter)| take(&mut left, *letter)).last();
    let end = start.map_or("", |(at, _)| &text[at..]);
    Cow::Owned(if most > 0 { format!("…{end}") } else { String::new() })
}

/// A text in lines of at most so many columns, broken between words; the last of `most` lines is cut.
pub(crate) fn wrap(text: &str, columns: usize, most: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        let is_last = lines.len() == most;
        match lines.last_mut() {
            Some(line) if is_last || width(line) + 1 + width(word) <= columns => {
                line.push(' ');
                line.push_str(word);
            }
            _ if most > 0 => lines.push(word.to_owned()),
            _ => {}
        }
    }
    lines.iter().map(|line| fit(line, columns).into_owned()).collect()
}

fn take(left: &mut usize, letter: char) -> bool {
    let columns = letter.width().unwrap_or(0);
    let fits = columns <= *left;
    *left = left.saturating_sub(columns);
    fits
}

/// A name without where it was defined: that is its caller, which is shown anyway.
pub(crate) fn short_name(function: &str) -> Cow<'_, str> {
    if function.contains(".<locals>.") {
        Cow::Owned(function.replace(".<locals>.", "."))
    } else {
        Cow::Borrowed(function)
    }
}

/// The part of a path that tells it apart: without where libraries are installed or the current directory.
pub(crate) fn short_path(path: &str) -> &str {
    static HERE: OnceLock<Option<String>> = OnceLock::new();
    let here = HERE.get_or_init(|| Some(std::env::current_dir().ok()?.to_str()?.to_owned()));
    let inside = here.as_deref().and_then(|here| path.strip_prefix(here)?.strip_prefix('/'));
    if let Some(inside) = inside.filter(|inside| !inside.contains("/site-packages/")) {
        return inside;
    }
    for mark in ["/site-packages/", "/dist-packages/"] {
        if let Some((_, rest)) = path.rsplit_once(mark) {
            return rest;
        }
    }
    if let Some((_, rest)) = path.split_once("/lib/python3.")
        && let Some((_, rest)) = rest.split_once('/')
    {
        return rest;
    }
    path
}

/// `1 234 567`
pub(crate) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(' ');
        }
        text.push(digit);
    }
    text
}

/// A span of seconds as people read it.
pub(crate) fn span(seconds: f64) -> String {
    let whole = seconds.max(0.0) as u64;
    match whole {
        0..60 => format!("{whole} s"),
        60..3600 => format!("{} min {:02} s", whole / 60, whole % 60),
        _ => format!("{} h {:02} min", whole / 3600, whole % 3600 / 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_steers_the_terminal() {
        let hostile = "a\x1b]0;owned\x07b\u{9b}2Jc\u{202e}d\ne\x7f";
        let safe = clean(hostile);
        assert!(!safe.chars().any(steers), "{safe:?}");
        assert_eq!(safe, "a␛]0;owned␇b\u{fffd}2Jc\u{fffd}d␊e␡");
        assert_eq!(clean("naïve 函数"), "naïve 函数");
        assert_eq!(clean(&"x".repeat(10_000)).len(), LONGEST);
    }

    #[test]
    fn cut_to_columns_not_letters() {
        assert_eq!(fit("函数函数", 5), "函数…");
        assert_eq!(fit("short", 5), "short");
        assert_eq!(fit_end("/a/long/path.py:3", 10), "…path.py:3");
        assert_eq!(fit("abc", 0), "");
        assert_eq!(fit_end("abc", 0), "");
        assert_eq!(fit("abc", 1), "…");
    }

    #[test]
    fn lines_break_between_words() {
        let text = "one two three four five";
        assert_eq!(wrap(text, 9, 9), ["one two", "three", "four five"]);
        assert_eq!(wrap(text, 9, 2), ["one two", "three fo…"]);
        assert_eq!(wrap(text, 9, 0), [""; 0]);
        assert_eq!(wrap("", 9, 2), [""; 0]);
        assert_eq!(wrap("unbreakable", 4, 2), ["unb…"]);
    }

    #[test]
    fn paths_and_numbers() {
        let here = std::env::current_dir().unwrap();
        assert_eq!(short_path(here.join("src/a.py").to_str().unwrap()), "src/a.py");
        assert_eq!(short_name("train.<locals>.<listcomp>"), "train.<listcomp>");
        assert_eq!(short_path("/v/lib/python3.12/site-packages/torch/x.py"), "torch/x.py");
        assert_eq!(short_path("/usr/lib/python3.11/json/decoder.py"), "json/decoder.py");
        assert_eq!(short_path("train.py"), "train.py");
        assert_eq!(grouped(1_234_567), "1 234 567");
        assert_eq!(grouped(12), "12");
        assert_eq!(span(3700.0), "1 h 01 min");
    }
}
