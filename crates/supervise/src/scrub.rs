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

/// The value as it may be written down.
pub fn value(name: &str, value: &str) -> String {
    let upper = name.to_uppercase();
    let is_key = upper == "KEY" || upper.ends_with("_KEY") || upper.ends_with("_PAT");
    if !value.is_empty() && (is_key || SECRET_WORDS.iter().any(|word| upper.contains(word))) {
        return REDACTED.to_owned();
    }
    without_password(value)
}

/// An argument as it may be written down: `--token=x` keeps its name, and `--token x` is told by `before`.
pub fn argument(before: Option<&str>, argument: &str) -> String {
    if let Some((name, text)) = argument.split_once('=')
        && name.starts_with('-')
    {
        return format!("{name}={}", value(name.trim_start_matches('-'), text).as_str());
    }
    match before {
        Some(option) if option.starts_with("--") && !option.contains('=') && !argument.starts_with('-') => {
            value(&option.trim_start_matches('-').replace('-', "_"), argument)
        }
        _ => without_password(argument),
    }
}

/// `scheme://user:password@host` without the password.
fn without_password(text: &str) -> String {
    let Some((scheme, rest)) = text.split_once("://") else { return text.to_owned() };
    let authority = rest.split(['/', '?', '#']).next().unwrap_or(rest);
    let Some((user_info, _)) = authority.rsplit_once('@') else { return text.to_owned() };
    let Some((user, _)) = user_info.split_once(':') else { return text.to_owned() };
    format!("{scheme}://{user}:{REDACTED}@{}", &rest[user_info.len() + 1..])
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
    fn the_rest_is_kept() {
        assert_eq!(value("CUDA_VISIBLE_DEVICES", "0,1"), "0,1");
        assert_eq!(value("MONKEY", "see"), "see");
        assert_eq!(value("HOME", "https://host/path@x"), "https://host/path@x");
        assert_eq!(argument(Some("--epochs"), "3"), "3");
        assert_eq!(argument(None, "--lr=0.1"), "--lr=0.1");
    }
}
