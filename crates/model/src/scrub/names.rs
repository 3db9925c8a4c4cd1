//! Names whose values are secrets: of variables, options, JSON keys, URL parameters. Must not allocate: the hook asks too.

/// A name with one of these inside any of its words.
pub(crate) const ANYWHERE: [&str; 8] =
    ["SECRET", "PASSWORD", "PASSWD", "PASSPHRASE", "CREDENTIAL", "APIKEY", "ACCESSKEY", "PRIVATEKEY"];

/// A name with one of these as a whole word.
pub(crate) const WORDS: [&str; 15] = [
    "TOKEN",
    "AUTH",
    "AUTHORIZATION",
    "BEARER",
    "CRED",
    "CREDS",
    "COOKIE",
    "COOKIES",
    "JWT",
    "SAS",
    "SIGNATURE",
    "SIGNING",
    "WEBHOOK",
    "PASSCODE",
    "OTP",
];

/// A name that ends with one of these words: `API_KEY`, but not `key-dim`; `--db-pass`, but not `--pass-through`.
pub(crate) const LAST: [&str; 9] = ["KEY", "PASS", "PWD", "PW", "PIN", "PAT", "SIG", "TOKENS", "DSN"];

/// A last word that ends so, where it is longer: `MYPASS`, `hftoken`.
pub(crate) const ENDINGS: [&str; 2] = ["PASS", "TOKEN"];

/// A name that is just this.
pub(crate) const WHOLE: [&str; 4] = ["ACCESS", "BASIC", "PRIVATE", "KUBECONFIG_DATA"];

/// Names with a secret's words that are none.
pub(crate) const HARMLESS: [&str; 9] = [
    "PWD",
    "OLDPWD",
    "BYPASS",
    "COMPASS",
    "MAX_TOKENS",
    "NUM_TOKENS",
    "MAX_NEW_TOKENS",
    "SORT_KEY",
    "PRIMARY_KEY",
];

/// Longest name that is looked at; a longer one is not a name.
const LONGEST: usize = 256;

/// Whether the value under this name is a secret.
#[must_use]
pub fn is_secret_name(name: &str) -> bool {
    let name = name.trim_start_matches('-');
    if name.is_empty() || name.len() > LONGEST || HARMLESS.iter().any(|harmless| same(name, harmless)) {
        return false;
    }
    if WHOLE.iter().any(|whole| same(name, whole)) || ends_with_connection_string(name) {
        return true;
    }
    let mut last = "";
    for word in Words(name) {
        if ANYWHERE.iter().any(|part| contains(word, part)) || WORDS.iter().any(|one| same(word, one)) {
            return true;
        }
        last = word;
    }
    LAST.iter().any(|one| same(last, one))
        || (!HARMLESS.iter().any(|harmless| same(last, harmless))
            && ENDINGS.iter().any(|end| last.len() > end.len() && ends_with(last, end)))
}

fn ends_with_connection_string(name: &str) -> bool {
    ["CONNECTION_STRING", "CONNECTIONSTRING"].iter().any(|end| ends_with(name, end))
}

/// Equal but for case, and for `-` and `_`.
fn same(name: &str, upper: &str) -> bool {
    name.len() == upper.len() && name.bytes().zip(upper.bytes()).all(|(a, b)| folded(a) == b)
}

fn ends_with(name: &str, upper: &str) -> bool {
    name.len() >= upper.len()
        && name.as_bytes()[name.len() - upper.len()..].iter().zip(upper.bytes()).all(|(a, b)| folded(*a) == b)
}

fn contains(name: &str, upper: &str) -> bool {
    name.as_bytes()
        .windows(upper.len())
        .any(|window| window.iter().zip(upper.bytes()).all(|(a, b)| folded(*a) == b))
}

fn folded(byte: u8) -> u8 {
    if byte == b'-' { b'_' } else { byte.to_ascii_uppercase() }
}

/// The words of a name: `AccountKey` and `ACCOUNT_KEY` have two each.
struct Words<'a>(&'a str);

impl<'a> Iterator for Words<'a> {
    type Item = &'a str;

    fn next(&mut self) -> Option<&'a str> {
        let rest = self.0.trim_start_matches(|c: char| !c.is_alphanumeric());
        if rest.is_empty() {
            return None;
        }
        let mut before = ' ';
        let end = rest
            .char_indices()
            .find(|(_, c)| {
                let is_end = !c.is_alphanumeric() || (before.is_lowercase() && c.is_uppercase());
                before = *c;
                is_end
            })
            .map_or(rest.len(), |(at, _)| at);
        let (word, beyond) = rest.split_at(end);
        self.0 = beyond;
        Some(word)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_secrets_are_known() {
        for name in [
            "AWS_SECRET_ACCESS_KEY",
            "AWS_SESSION_TOKEN",
            "GITHUB_TOKEN",
            "HF_TOKEN",
            "OPENAI_API_KEY",
            "wandb_api_key",
            "SLACK_WEBHOOK",
            "MYSQL_PWD",
            "PGPASSWORD",
            "DB_PASS",
            "DB_PASSWORD",
            "PASS",
            "PASSWD",
            "SMTP_PW",
            "PIN",
            "CRED",
            "CREDENTIALS",
            "COOKIE",
            "SESSION_COOKIE",
            "JWT",
            "AUTH",
            "BASIC",
            "AZURE_STORAGE_CONNECTION_STRING",
            "SAS",
            "SIGNING",
            "SIGNATURE",
            "ACCESS",
            "PRIVATE_KEY",
            "KUBECONFIG_DATA",
            "NPM_CONFIG__AUTH",
            "SSH_KEY",
            "--password",
            "--api-key",
            "--db-pass",
            "MYPASS",
            "AccountKey",
            "X-Auth-Token",
            "apiKey",
            "hftoken",
            "SSH_AUTH_SOCK",
            "GH_PAT",
            "Cookie",
            "SharedAccessSignature",
            "CI_JOB_TOKEN",
        ] {
            assert!(is_secret_name(name), "{name}");
        }
    }

    #[test]
    fn other_names_are_not() {
        for name in [
            "--max-tokens",
            "--tokenizer",
            "--num-key-value-heads",
            "--key-dim",
            "--session-id",
            "--pass-through",
            "--seed",
            "TOKENIZERS_PARALLELISM",
            "PYTORCH_CUDA_ALLOC_CONF",
            "CUDA_VISIBLE_DEVICES",
            "OMP_NUM_THREADS",
            "PWD",
            "OLDPWD",
            "MONKEY",
            "author",
            "--keys",
            "pin_memory",
            "--pin-memory",
            "bypass",
            "compass",
            "accessible",
            "assign",
            "keyring",
            "authority",
            "",
            "--",
        ] {
            assert!(!is_secret_name(name), "{name}");
        }
    }
}
