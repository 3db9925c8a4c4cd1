//! Words that are secrets by their shape, wherever they are. Must not allocate: the hook asks too.

/// Beginnings by which services mark their own secrets.
pub(crate) const STARTS: [&str; 20] = [
    "ghp_",
    "gho_",
    "ghu_",
    "ghs_",
    "ghr_",
    "github_pat_",
    "glpat-",
    "hf_",
    "sk-",
    "xoxa-",
    "xoxb-",
    "xoxp-",
    "xoxs-",
    "xapp-",
    "AKIA",
    "ASIA",
    "AIza",
    "npm_",
    "pypi-",
    "dckr_pat_",
];

/// Shorter than this after its beginning, a word inside a text is a name like `hf_model` or `sk-learn`.
pub(crate) const SHORTEST: usize = 8;

/// From this length on it needs neither digits nor capitals to be a secret: `hf_hub_download` is a function.
pub(crate) const LONG: usize = 20;

/// Shortest where it is a whole value or argument.
const SHORTEST_WHOLE: usize = 4;

/// Begins a private key; the rest of the text belongs to it.
pub(crate) const KEY_BLOCK: &str = "-----BEGIN ";

/// Part of a URL whose path is the secret.
pub(crate) const SECRET_PATH: &str = "hooks.slack.com/services/";

/// Characters of a key that is base64 of 30 bytes, as the second half of an AWS credential is.
const LONG_KEY: usize = 40;

/// Whether a word (letters, digits and `_ - . + / =`) is a secret by itself.
#[must_use]
pub fn is_secret_word(word: &str) -> bool {
    let is_random = |rest: &str| {
        rest.len() >= LONG
            || rest.chars().any(|c| c.is_ascii_digit())
            || rest.chars().any(|c| c.is_ascii_uppercase())
    };
    let has_start = |start: &&str| {
        word.strip_prefix(*start)
            .is_some_and(|rest| rest.len() >= SHORTEST && is_random(rest) && rest.chars().all(is_of_token))
    };
    STARTS.iter().any(has_start) || is_json_web_token(word) || is_long_key(word)
}

/// Whether a whole value begins as secrets of a service do. Cloud regions begin like access keys, which are longer.
pub(crate) fn begins_as_secret(word: &str) -> bool {
    let has_start = |start: &&str| word.strip_prefix(*start).is_some_and(|rest| rest.len() >= SHORTEST_WHOLE);
    let is_marked = |start: &&&str| start.ends_with(['_', '-']);
    STARTS.iter().filter(is_marked).any(has_start)
}

/// Characters that a token may have.
pub(crate) fn is_of_token(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.' | '+' | '/' | '=')
}

/// Three parts with dots between, the first beginning with an encoded brace.
fn is_json_web_token(word: &str) -> bool {
    let Some(rest) = word.strip_prefix("eyJ") else { return false };
    let mut parts = rest.split('.');
    let is_part = |part: Option<&str>| part.is_some_and(|part| part.len() >= 2);
    is_part(parts.next()) && is_part(parts.next())
}

/// 40 characters of base64 in both cases with a digit. Hashes are hexadecimal; paths begin with a slash or have many.
fn is_long_key(word: &str) -> bool {
    let is_base64 = |c: char| c.is_ascii_alphanumeric() || matches!(c, '+' | '/');
    let count = |is: fn(&char) -> bool| word.chars().filter(is).count();
    word.len() == LONG_KEY
        && word.chars().all(is_base64)
        && count(|c| c.is_ascii_uppercase()) >= 4
        && count(|c| c.is_ascii_lowercase()) >= 4
        && count(|c| c.is_ascii_digit()) >= 1
        && !word.starts_with('/')
        && count(|c| *c == '/') <= 3
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_known_by_their_shape() {
        for word in [
            "ghp_16C7e42F292c6912E7710c838347Ae178B4a",
            "glpat-ABCdefGHIjklMNOpqrST",
            "hf_abcdefghijklmnopqrstuvwxyz",
            "sk-proj-abcdefghijklmnop1234",
            "AKIAIOSFODNN7EXAMPLE",
            "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
            "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N",
        ] {
            assert!(is_secret_word(word), "{word}");
        }
    }

    #[test]
    fn hashes_paths_and_names_are_not() {
        for word in [
            "hf_model",
            "sk-learn",
            "ASIA",
            "da39a3ee5e6b4b0d3255bfef95601890afd80709",
            "/usr/lib/python3.11/site-packages/torch1",
            "eyJ",
            "train.py",
        ] {
            assert!(!is_secret_word(word), "{word}");
        }
    }
}
