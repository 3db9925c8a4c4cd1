//! Keeping secrets out of what is written down: a run's environment and command line end up in bug reports.

/// What stands in place of a secret.
pub const REDACTED: &str = "<redacted>";

/// Words in a variable's name that make its value a secret.
const SECRET_WORDS: [&str; 11] = [
    "SECRET",
    "TOKEN",
    "PASSWORD",
    "PASSWD",
    "PASSPHRASE",
    "CREDENTIAL",
    "APIKEY",
    "API_KEY",
    "ACCESS_KEY",
    "PRIVATE_KEY",
    "AUTH",
];

/// Beginnings by which services' own secrets are known, wherever they stand.
const KNOWN_STARTS: [&str; 9] =
    ["ghp_", "gho_", "ghs_", "github_pat_", "glpat-", "hf_", "sk-", "xoxb-", "-----BEGIN "];

/// Words before a secret in a header: `Authorization: Bearer x`.
const SCHEMES: [&str; 3] = ["BEARER", "BASIC", "TOKEN"];

/// The value as it may be written down.
pub fn value(name: &str, value: &str) -> String {
    let is_count = name.to_uppercase().contains("TOKENS") && value.parse::<f64>().is_ok();
    if !value.is_empty()
        && ((is_secret(name) && !is_count)
            || KNOWN_STARTS.iter().any(|start| value.trim().starts_with(start)))
    {
        return REDACTED.to_owned();
    }
    without_pairs(&without_secrets(value))
}

/// An argument as it may be written down: `--token=x` keeps its name, and `--token x` is told by `before`.
pub fn argument(before: Option<&str>, argument: &str) -> String {
    let name = |option: &str| option.trim_start_matches('-').replace('-', "_");
    if let Some((option, text)) = argument.split_once('=')
        && option.starts_with('-')
    {
        return format!("{option}={}", value(&name(option), text).as_str());
    }
    // `NAME=value` before a command sets a variable.
    if let Some((variable, text)) = argument.split_once('=')
        && variable.chars().all(is_of_name)
        && is_secret(variable)
    {
        return format!("{variable}={}", value(variable, text));
    }
    match before {
        Some(option) if option.starts_with("--") && !option.contains('=') && !argument.starts_with('-') => {
            value(&name(option), argument)
        }
        _ => value("", argument),
    }
}

fn is_of_name(c: char) -> bool {
    c.is_alphanumeric() || matches!(c, '_' | '-')
}

fn is_secret(name: &str) -> bool {
    // Neither a tokenizer nor an author is one.
    let upper = name.to_uppercase().replace('-', "_").replace("TOKENIZ", "").replace("AUTHORI", "AUTH_");
    let upper = upper.replace("AUTHOR", "");
    let is_key =
        upper == "KEY" || upper.ends_with("_KEY") || upper.ends_with("_PAT") || upper.ends_with("_SIG");
    is_key || SECRET_WORDS.iter().any(|word| upper.contains(word))
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
        let is_scheme = SCHEMES[..2].contains(&bare.to_uppercase().as_str()) && rest.starts_with(' ');
        // A bare `key` is seldom one: every other object has it.
        if is_scheme || (is_secret(bare) && !bare.eq_ignore_ascii_case("key")) {
            rest = redact_next(rest, name.starts_with("--") || is_scheme, &mut safe);
        }
    }
    safe.push_str(rest);
    safe
}

/// What belongs to a name that ended just before `rest` is left out of `safe`; the text after it.
fn redact_next<'a>(rest: &'a str, takes_word: bool, safe: &mut String) -> &'a str {
    let is_quote = |c: char| matches!(c, '"' | '\'' | '\\');
    let after_name = rest.trim_start_matches(is_quote).trim_start();
    let opening = match after_name.strip_prefix([':', '=']) {
        Some(after) => after.trim_start(),
        None if takes_word && rest.starts_with(char::is_whitespace) && !after_name.starts_with('-') => {
            after_name
        }
        None => return rest,
    };
    let body = opening.trim_start_matches(is_quote);
    let is_quoted = body.len() < opening.len();
    let ends = |c: char| if is_quoted { is_quote(c) } else { c.is_whitespace() || ",;&}])".contains(c) };
    let length = body.find(ends).unwrap_or(body.len());
    // An object or a list under such a name is looked into, not cut.
    if length == 0 || body.starts_with(['{', '[', '<']) {
        return rest;
    }
    let (word, beyond) = body.split_at(length);
    // After the scheme of a header comes the secret itself.
    let is_scheme = SCHEMES.contains(&word.to_uppercase().as_str()) && beyond.starts_with(' ');
    let secret = if is_scheme { beyond.trim_start() } else { body };
    safe.push_str(&rest[..rest.len() - secret.len()]);
    safe.push_str(REDACTED);
    &secret[secret.find(ends).unwrap_or(secret.len())..]
}

/// Every address in a text without who logs in with what, and without the secrets among its parameters.
fn without_secrets(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("://") {
        safe.push_str(before);
        safe.push_str("://");
        let end =
            after.find(|c: char| matches!(c, '/' | '?' | '#' | ',' | ';' | '"' | '\'') || c.is_whitespace());
        let (authority, beyond) = after.split_at(end.unwrap_or(after.len()));
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
    without_parameters(&safe)
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
            Some((name, _)) if is_secret(name) || name.eq_ignore_ascii_case("sig") => {
                safe.push_str(&format!("{name}={REDACTED}"));
            }
            _ => safe.push_str(body),
        }
        safe.push_str(separator);
    }
    safe
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_do_not_get_through() {
        for name in
            ["AWS_SECRET_ACCESS_KEY", "HF_TOKEN", "wandb_api_key", "DB_PASSWORD", "SSH_AUTH_SOCK", "GH_PAT"]
        {
            assert_eq!(value(name, "hush"), REDACTED, "{name}");
        }
        assert_eq!(value("DATABASE_URL", "postgres://me:hush@db/x?y"), "postgres://me:<redacted>@db/x?y");
        assert_eq!(argument(Some("--api-key"), "hush"), REDACTED);
        assert_eq!(argument(None, "--token=hush"), "--token=<redacted>");
    }

    #[test]
    fn hostile_places_for_a_secret() {
        for (name, text) in [
            ("X", "https://ghp_hush@github.com/a"),
            ("X", "http://a:hush@h1,http://b:hush@h2"),
            ("X", "https://host/x?sig=hush&y=1"),
            ("X", "https://host/?a=1;access_token=hush"),
            ("NCCL_X", "hf_hush"),
            ("PROXY", "socks5://me:hu:sh@hush:1@host"),
            ("cert", "-----BEGIN PRIVATE KEY-----\nhush"),
            ("CONFIG", r#"{"api_key":"hush","n":{"password" : "hush, hush"},"list":[{"token":'hush'}]}"#),
            ("CONFIG", r#""{\"api_key\": \"hush\"}""#),
            ("ARGS", "--api-key=hush --token hush -v --db-password 'hush hush'"),
            ("HEADER", "Authorization: Bearer hush"),
            ("HEADER", "X-Auth-Token: hush; y=1"),
            ("CURL", "-H 'Authorization: Basic hush' https://h"),
        ] {
            let safe = value(name, text);
            let host_only = safe.replace("@hush", "");
            assert!(!host_only.contains("hush"), "{text} → {safe}");
        }
        for (before, text) in [
            (None, "--api-key=hush"),
            (None, "WANDB_API_KEY=hush"),
            (Some("--db-password"), "hush"),
            (None, "sk-hush"),
            (None, "s3://key:hush@bucket"),
            (None, "https://me:hush@host/x?access_token=hush"),
            (None, r#"{"secret":"hush"}"#),
            (Some("-H"), "Authorization: Bearer hush"),
            (Some("-c"), "connect(password='hush', user='me')"),
        ] {
            let safe = argument(before, text);
            assert!(!safe.contains("hush"), "{text} → {safe}");
        }
    }

    #[test]
    fn the_rest_is_kept() {
        assert_eq!(value("CUDA_VISIBLE_DEVICES", "0,1"), "0,1");
        assert_eq!(value("MONKEY", "see"), "see");
        assert_eq!(value("HOME", "https://host/path@x"), "https://host/path@x");
        assert_eq!(argument(Some("--epochs"), "3"), "3");
        assert_eq!(argument(None, "--lr=0.1"), "--lr=0.1");
        assert_eq!(value("X", "a=b;c=d&e?f"), "a=b;c=d&e?f");
        assert_eq!(value("X", "tcp://10.0.0.1:29500"), "tcp://10.0.0.1:29500");
        assert_eq!(argument(None, "file.py"), "file.py");
        assert_eq!(value("TOKENIZERS_PARALLELISM", "false"), "false");
        assert_eq!(argument(Some("--max-tokens"), "4096"), "4096");
        assert_eq!(argument(None, "--tokenizer=gpt2"), "--tokenizer=gpt2");
        for text in [
            r#"{"author": "me", "lr": 0.1, "tokenizer": "gpt2"}"#,
            "import keyring; key = 1",
            "--keys a b --author=me",
            "<redacted> is redacted; a token of thanks",
        ] {
            assert_eq!(value("X", text), text);
        }
    }
}
