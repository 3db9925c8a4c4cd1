//! Texts without their secrets.

use crate::scrub::REDACTED;
use crate::scrub::names::is_secret_name;
use crate::scrub::shapes::{KEY_BLOCK, SECRET_PATH, begins_as_secret, is_of_token, is_secret_word};

/// Words before a secret in a header: `Authorization: Bearer x`.
pub(crate) const SCHEMES: [&str; 3] = ["BEARER", "BASIC", "TOKEN"];

/// Headers whose value is a secret up to the end of the line.
const WHOLE_LINE: [&str; 3] = ["COOKIE", "SET-COOKIE", "AUTHORIZATION"];

/// `-p` before one of these is a port or a count of processes.
const LARGEST_PORT: u32 = 65_535;

/// A value as it may be written down.
#[must_use]
pub fn value(name: &str, value: &str) -> String {
    if !value.is_empty() && (is_secret_pair(name, value) || begins_as_secret(value.trim())) {
        return REDACTED.to_owned();
    }
    text(value)
}

/// A command line as it may be written down.
#[must_use]
pub fn command<W: AsRef<str>>(words: &[W]) -> Vec<String> {
    let before = std::iter::once(None).chain(words.iter().map(|word| Some(word.as_ref())));
    before.zip(words).map(|(before, word)| argument(before, word.as_ref())).collect()
}

/// An argument as it may be written down: `--token=x` keeps its name, and `--token x` is known by `before`.
#[must_use]
pub fn argument(before: Option<&str>, argument: &str) -> String {
    if before.is_some_and(|before| takes_a_secret(before, argument)) {
        return REDACTED.to_owned();
    }
    if let Some((name, rest)) = argument.split_once('=')
        && name.chars().all(is_of_name)
    {
        return format!("{name}={}", value(name, rest));
    }
    match argument.strip_prefix("-p") {
        Some(rest) if !rest.is_empty() && !is_port(rest) => format!("-p{REDACTED}"),
        _ => value("", argument),
    }
}

/// Whether the argument after `before` is its secret.
pub(crate) fn takes_a_secret(before: &str, argument: &str) -> bool {
    if argument.is_empty() || argument.starts_with('-') {
        return false;
    }
    match before {
        "-p" => !is_port(argument),
        _ => before.starts_with('-') && !before.contains('=') && is_secret_pair(before, argument),
    }
}

fn is_port(text: &str) -> bool {
    text.split(':').all(|part| part.parse::<u32>().is_ok_and(|port| port <= LARGEST_PORT))
}

/// A number under a name such as `prompt_tokens` is a count.
fn is_secret_pair(name: &str, value: &str) -> bool {
    let is_count = || name.to_ascii_uppercase().ends_with("TOKENS") && value.parse::<f64>().is_ok();
    is_secret_name(name) && !is_count()
}

pub(crate) fn is_of_name(c: char) -> bool {
    c.is_alphanumeric() || matches!(c, '_' | '-')
}

pub(crate) fn is_scheme(word: &str) -> bool {
    SCHEMES[..2].iter().any(|scheme| word.eq_ignore_ascii_case(scheme))
}

/// Any text as it may be written down: an exception's message, a value with JSON or a command line in it.
#[must_use]
pub fn text(text: &str) -> String {
    let open = match text.split_once(KEY_BLOCK) {
        Some((before, _)) => format!("{before}{REDACTED}"),
        None => text.to_owned(),
    };
    without_words(&without_pairs(&without_parameters(&without_logins(&open))))
}

/// Addresses without user and password.
fn without_logins(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("://") {
        safe.push_str(before);
        safe.push_str("://");
        let end =
            after.find(|c: char| matches!(c, '/' | '?' | '#' | ',' | ';' | '"' | '\'') || c.is_whitespace());
        let (authority, beyond) = after.split_at(end.unwrap_or(after.len()));
        // A password may hold the characters that end an authority.
        let word =
            after.split(|c: char| c.is_whitespace() || matches!(c, '"' | '\'')).next().unwrap_or(after);
        let is_late =
            !authority.contains('@') && authority.contains(':') && word[authority.len()..].contains('@');
        let (authority, beyond) = match is_late.then(|| word.rfind('@')).flatten() {
            Some(at) => {
                after.split_at(after[at..].find(['/', '?', '#']).map_or(word.len(), |slash| at + slash))
            }
            None => (authority, beyond),
        };
        match authority.rsplit_once('@') {
            Some((user, host)) => match user.split_once(':') {
                Some((user, _)) => safe.push_str(&format!("{user}:{REDACTED}@{host}")),
                // A name by itself is as often a token as it is a name.
                None => safe.push_str(&format!("{REDACTED}@{host}")),
            },
            None => safe.push_str(authority),
        }
        rest = beyond;
    }
    safe.push_str(rest);
    match safe.split_once(SECRET_PATH) {
        Some((before, after)) => {
            let end = after.find(|c: char| !is_of_token(c)).unwrap_or(after.len());
            format!("{before}{SECRET_PATH}{REDACTED}{}", &after[end..])
        }
        None => safe,
    }
}

/// `?token=x&y=z` without the x.
fn without_parameters(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for part in text.split_inclusive(['?', '&', ';']) {
        let (body, separator) = match part.char_indices().next_back() {
            Some((at, '?' | '&' | ';')) => part.split_at(at),
            _ => (part, ""),
        };
        match body.split_once('=') {
            Some((name, rest)) if name.chars().all(is_of_name) && is_secret_pair(name, rest) => {
                let end =
                    rest.find(|c: char| c.is_whitespace() || matches!(c, '"' | '\'')).unwrap_or(rest.len());
                safe.push_str(&format!("{name}={REDACTED}{}", &rest[end..]));
            }
            _ => safe.push_str(body),
        }
        safe.push_str(separator);
    }
    safe
}

/// `"api_key": "x"`, `--token x`, `Authorization: Bearer x` inside a text, without the x: settings are often JSON or a
/// command line in one variable.
fn without_pairs(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(start) = rest.find(is_of_name) {
        let end = rest[start..].find(|c: char| !is_of_name(c)).map_or(rest.len(), |length| start + length);
        let name = &rest[start..end];
        safe.push_str(&rest[..end]);
        rest = &rest[end..];
        let bare = name.trim_start_matches('-');
        let takes_word = is_scheme(bare) && rest.starts_with(' ');
        // A bare `key` is seldom one: every other object has it.
        if takes_word || (is_secret_name(bare) && !bare.eq_ignore_ascii_case("key")) {
            rest = redact_next(bare, rest, name.starts_with("--") || takes_word, &mut safe);
        }
    }
    safe.push_str(rest);
    safe
}

/// The value of a name that ended just before `rest` is left out of `safe`; the text after it.
fn redact_next<'a>(name: &str, rest: &'a str, takes_word: bool, safe: &mut String) -> &'a str {
    let is_quote = |c: char| matches!(c, '"' | '\'' | '\\');
    let after_name = rest.trim_start_matches(is_quote).trim_start();
    let opening = match after_name.strip_prefix([':', '=']) {
        // `key: value`, not the `::` of a path.
        Some(after) if !after.starts_with([':', '=']) => after.trim_start(),
        Some(_) => return rest,
        None if takes_word && rest.starts_with(char::is_whitespace) && !after_name.starts_with('-') => {
            after_name
        }
        None => return rest,
    };
    let body = opening.trim_start_matches(is_quote);
    let is_quoted = body.len() < opening.len();
    let is_line = WHOLE_LINE.iter().any(|header| name.eq_ignore_ascii_case(header));
    let ends = |c: char| match (is_quoted, is_line) {
        (true, _) => is_quote(c),
        (false, true) => is_quote(c) || matches!(c, '\n' | '\r'),
        (false, false) => c.is_whitespace() || ",;&}])\"'".contains(c),
    };
    let length = body.find(ends).unwrap_or(body.len());
    // An object or a list under such a name is looked into, not cut.
    if length == 0 || body.starts_with(['{', '[', '<']) {
        return rest;
    }
    let (word, beyond) = body.split_at(length);
    if is_secret_pair("tokens", word)
        && word.parse::<f64>().is_ok()
        && name.to_ascii_uppercase().ends_with("TOKENS")
    {
        return rest;
    }
    // After the scheme of a header comes the secret itself.
    let scheme = SCHEMES.iter().find(|scheme| {
        word.get(..scheme.len()).is_some_and(|start| start.eq_ignore_ascii_case(scheme))
            && (word.len() == scheme.len() && beyond.starts_with(' ')
                || word[scheme.len()..].starts_with(' '))
    });
    let secret = match scheme {
        Some(scheme) => body[scheme.len()..].trim_start(),
        None => body,
    };
    safe.push_str(&rest[..rest.len() - secret.len()]);
    safe.push_str(REDACTED);
    &secret[secret.find(ends).unwrap_or(secret.len())..]
}

/// Words that are secrets by themselves.
fn without_words(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(start) = rest.find(is_of_token) {
        let (before, word) = rest.split_at(start);
        let (word, after) = word.split_at(word.find(|c: char| !is_of_token(c)).unwrap_or(word.len()));
        safe.push_str(before);
        match secret_part(word) {
            Some(at) => {
                safe.push_str(&word[..at]);
                safe.push_str(REDACTED);
            }
            None => safe.push_str(word),
        }
        rest = after;
    }
    safe.push_str(rest);
    safe
}

/// Where a secret begins in a word: at its beginning, or after `key=` or a slash of a path.
fn secret_part(word: &str) -> Option<usize> {
    let starts = std::iter::once(0).chain(word.match_indices(['=', '/']).map(|(at, _)| at + 1));
    starts.into_iter().find(|at| is_secret_word(word[*at..].trim_end_matches('.')))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hostile_places_for_a_secret() {
        for (name, text) in [
            ("X", "https://ghp_hush@github.com/a"),
            ("X", "http://a:hush@h1,http://b:hush@h2"),
            ("X", "https://host/x?sig=hush&y=1"),
            ("X", "https://host/?a=1;access_token=hush"),
            ("NCCL_X", "hf_hush"),
            ("PROXY", "socks5://me:hu:sh@hush:1@host"),
            ("DSN2", "postgres://me:hu/sh@host/db"),
            ("cert", "-----BEGIN PRIVATE KEY-----\nhush"),
            ("CONFIG", r#"{"api_key":"hush","n":{"password" : "hush, hush"},"list":[{"token":'hush'}]}"#),
            ("CONFIG", r#""{\"api_key\": \"hush\"}""#),
            ("ARGS", "--api-key=hush --token hush -v --db-password 'hush hush'"),
            ("HEADER", "Authorization: Bearer hush"),
            ("HEADER", "X-Auth-Token: hush; y=1"),
            ("HEADER", "Cookie: a=hush; b=hush"),
            ("CURL", "-H 'Authorization: Basic hush' https://h"),
            ("X", "https://hooks.slack.com/services/T0/B0/hush"),
            ("AZ", "DefaultEndpointsProtocol=https;AccountName=a;AccountKey=hush==;EndpointSuffix=core"),
            ("X", "redis://:hush@host"),
        ] {
            let safe = value(name, text);
            let host_only = safe.replace("@hush", "");
            assert!(!host_only.contains("hush"), "{text} → {safe}");
        }
    }

    #[test]
    fn arguments_lose_their_secrets() {
        for line in [
            vec!["--password", "hush"],
            vec!["--password=hush"],
            vec!["-p", "hush"],
            vec!["-phush"],
            vec!["--token=hush"],
            vec!["--api-key", "hush"],
            vec!["--db-pass", "hush"],
            vec!["MYPASS=hush", "prog"],
            vec!["-H", "Authorization: Bearer hush"],
            vec!["postgres://u:hush@h/db"],
            vec!["--header=Cookie: hush"],
            vec!["sk-hush"],
            vec!["s3://key:hush@bucket"],
            vec!["https://me:hush@host/x?access_token=hush"],
            vec![r#"{"secret":"hush"}"#],
            vec!["-c", "connect(password='hush', user='me')"],
        ] {
            let safe = command(&line);
            assert!(!safe.join(" ").contains("hush"), "{line:?} → {safe:?}");
        }
    }

    #[test]
    fn messages_lose_their_secrets() {
        for message in [
            "could not connect to postgresql://me:hush@db:5432/x",
            "401 for ghp_hush16C7e42F292c6912E7710c838347Ae178B4a",
            "bad credentials AKIAIOSFODNN7EXAMPLE wJalrXUtnFEMI/K7MDENG/bPxhushYEXAMPLEKEY",
            "header was Bearer eyJhbGciOi.eyJzdWIiOiIx.hushhush",
            "connect(host='h', password='hush')",
            "token = hush",
        ] {
            let safe = text(message);
            assert!(!safe.contains("hush") && safe.contains(REDACTED), "{message} → {safe}");
        }
    }

    #[test]
    fn the_rest_is_kept() {
        for (name, text) in [
            ("CUDA_VISIBLE_DEVICES", "0,1"),
            ("MONKEY", "see"),
            ("HOME", "https://host/path@x"),
            ("X", "a=b;c=d&e?f"),
            ("X", "tcp://10.0.0.1:29500"),
            ("TOKENIZERS_PARALLELISM", "false"),
            ("X", r#"{"author": "me", "lr": 0.1, "tokenizer": "gpt2"}"#),
            ("X", "import keyring; key = 1"),
            ("X", "--keys a b --author=me"),
            ("X", "<redacted> is redacted; a token of thanks"),
            ("X", "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 139.8 GiB"),
            ("X", "dictionary update sequence element #0 has length 1; 2 is required"),
            ("prompt_tokens", "512"),
        ] {
            assert_eq!(value(name, text), text, "{name}");
        }
        for line in [
            vec!["train.py", "--max-tokens", "512", "--tokenizer", "gpt2", "--num-key-value-heads", "8"],
            vec!["--key-dim", "64", "--session-id", "7", "--pass-through", "--seed", "1", "--lr=0.1"],
            vec!["--epochs", "3", "-p", "8080", "--tokenizer=gpt2", "-m", "pkg.mod", "-p8080"],
        ] {
            assert_eq!(command(&line), line);
        }
    }
}
