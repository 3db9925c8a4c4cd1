//! What kind of event this is: alert, collector transition, out of memory. The rules and words of 0.4.3.

/// Event types that are alerts whatever their metadata says, and severities that make an alert of any event.
const ALERTS: [&str; 3] = ["warning", "critical", "error"];

/// Whether an event counts as an alert.
pub(super) fn is_alert(event_type: &str, severity: Option<&str>) -> bool {
    ALERTS.contains(&event_type)
        || severity.is_some_and(|text| ALERTS.contains(&strip(text).to_lowercase().as_str()))
}

/// The severity an alert is counted under.
pub(super) fn severity_of(event_type: &str, severity: Option<&str>) -> String {
    match severity.map(normalize_text).filter(|text| !text.is_empty()) {
        Some(text) => text,
        None if matches!(event_type, "critical" | "error") => "critical".to_owned(),
        None if event_type == "warning" => "warning".to_owned(),
        None => "info".to_owned(),
    }
}

/// `str.strip()`: Unicode white space and the four ASCII separators.
pub(super) fn strip(text: &str) -> &str {
    text.trim_matches(is_space)
}

/// A text with what varies taken out, so that like ones are counted together: lower case, hexadecimal numbers as
/// `<hex>`, other numbers as `<num>`, white space as one blank. Empty when there is nothing in it.
fn normalize_text(text: &str) -> String {
    let lower = strip(text).to_lowercase();
    one_blank(&without_numbers(&without_hex(&lower)))
}

fn without_hex(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("0x") {
        let digits = rest[at + 2..].bytes().take_while(u8::is_ascii_hexdigit).count();
        let end = if digits == 0 { at + 1 } else { at + 2 + digits };
        out.push_str(if digits == 0 { &rest[..end] } else { &rest[..at] });
        if digits > 0 {
            out.push_str("<hex>");
        }
        rest = &rest[end..];
    }
    out + rest
}

/// Replaces numbers that stand alone, with fraction and percent sign where they have one.
fn without_numbers(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let stands_alone = !out.chars().next_back().is_some_and(is_word);
        match stands_alone.then(|| number_length(rest)).flatten() {
            Some(length) => {
                out.push_str("<num>");
                rest = &rest[length..];
            }
            None => {
                out.push(first);
                rest = &rest[first.len_utf8()..];
            }
        }
    }
    out
}

/// The length of the number at the start of a text, if nothing word-like follows it.
fn number_length(text: &str) -> Option<usize> {
    let digits = |from: usize| text[from..].bytes().take_while(u8::is_ascii_digit).count();
    let free = |end: usize| !text[end..].chars().next().is_some_and(is_word);
    let whole = Some(digits(0)).filter(|length| *length > 0)?;
    let fraction = if text[whole..].starts_with('.') { digits(whole + 1) } else { 0 };
    let longest = if fraction > 0 { whole + 1 + fraction } else { whole };
    for end in [longest, whole] {
        if text[end..].starts_with('%') && free(end + 1) {
            return Some(end + 1);
        }
        if free(end) {
            return Some(end);
        }
    }
    None
}

fn one_blank(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for character in text.chars() {
        if !is_space(character) {
            out.push(character);
        } else if !out.ends_with(' ') {
            out.push(' ');
        }
    }
    out
}

fn is_space(character: char) -> bool {
    character.is_whitespace() || ('\x1c'..='\x1f').contains(&character)
}

fn is_word(character: char) -> bool {
    character.is_alphanumeric() || character == '_'
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn severities_lose_what_varies() {
        // Each right side is what 0.4.3's normalize_text_dimension gives.
        let cases = [
            (" Warning ", "warning"),
            ("Level 3", "level <num>"),
            ("12.5% used", "<num> used"),
            ("12.5abc 7%x 9.", "<num>.5abc <num>%x <num>."),
            ("at 0xDEADbeef!", "at <hex>!"),
            ("0x", "0x"),
            ("00x1f", "<num><hex>"),
            ("a1 1a 1_000 -5 1.2.3", "a1 1a 1_000 -<num> <num>.<num>"),
            ("a \t\n b", "a b"),
            ("  ", ""),
        ];
        for (text, expected) in cases {
            assert_eq!(normalize_text(text), expected, "{text:?}");
        }
    }

    #[test]
    fn alerts_are_known_by_type_or_severity() {
        assert!(is_alert("critical", None));
        assert!(is_alert("sample", Some(" ERROR ")));
        assert!(!is_alert("sample", Some("info")));
        assert_eq!(severity_of("error", Some(" ")), "critical");
        assert_eq!(severity_of("warning", None), "warning");
        assert_eq!(severity_of("sample", None), "info");
    }
}
