//! Text of other programs made safe and short for a screen: no control character, no change of direction gets through.

use std::borrow::Cow;
use std::sync::OnceLock;

use stormlog_model::text::inert_text;
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// Longest name kept; longer ones are cut.
const LONGEST: usize = 512;

/// The text with everything that could steer a terminal made visible instead, and not longer than any screen.
pub(crate) fn clean(text: &str) -> Cow<'_, str> {
    match text.char_indices().nth(LONGEST) {
        Some((end, _)) => Cow::Owned(inert_text(&text[..end]).into_owned()),
        None => inert_text(text),
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

/// A text in lines of at most this many columns, broken between words; the last of `most` lines is cut.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_cut_and_cannot_steer() {
        assert_eq!(clean("a\x1b]0;owned\x07"), "a␛]0;owned␇");
        assert_eq!(clean(&"ö".repeat(10_000)).chars().count(), LONGEST);
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
    }
}
