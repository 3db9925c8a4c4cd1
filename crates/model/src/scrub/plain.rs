//! Whether an argument can be written down as it is. For the hook library, which must not allocate: it leaves out the whole word where it cannot.

use crate::scrub::names::is_secret_name;
use crate::scrub::shapes::{KEY_BLOCK, SECRET_PATH, is_of_token, is_secret_word};
use crate::scrub::text::{is_of_name, is_scheme, takes_a_secret};

/// True where [`argument`](crate::scrub::argument) would keep `word`, which comes after `before`, as it is. Some words that it would keep are
/// refused all the same.
#[must_use]
pub fn is_plain_argument(before: Option<&str>, word: &str) -> bool {
    if before.is_some_and(|before| takes_a_secret(before, word)) || (word.starts_with("-p") && word.len() > 2)
    {
        return false;
    }
    if word.contains(KEY_BLOCK) || word.contains(SECRET_PATH) || has_login(word) {
        return false;
    }
    let mut names = word.split(|c: char| !is_of_name(c)).filter(|name| !name.is_empty());
    let mut tokens = word.split(|c: char| !is_of_token(c));
    names.all(|name| !is_scheme(name) && !is_secret_name(name) && !is_secret_word(name))
        && tokens.all(|token| !is_secret_word(token.trim_matches(['.', '='])))
}

/// `scheme://user:password@host`.
fn has_login(word: &str) -> bool {
    word.match_indices("://").any(|(at, _)| word[at..].contains('@'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scrub::{REDACTED, argument};
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn plain_arguments_are_those_that_scrubbing_keeps(
            before in proptest::option::of("-{0,2}(token|epochs|p|db-pass|key-dim|H)"),
            word in "(-{0,2}(api[-_]key|password|lr|p|max-tokens|x)[=: ])?[A-Za-z0-9:/@.?&=' \"-]{0,20}(ghp_[a-z0-9]{36})?",
        ) {
            let safe = argument(before.as_deref(), &word);
            if safe.contains(REDACTED) && !word.contains(REDACTED) {
                prop_assert!(!is_plain_argument(before.as_deref(), &word), "{word:?} -> {safe:?}");
            }
        }
    }

    #[test]
    fn ordinary_arguments_are_plain() {
        for (before, word) in [
            (None, "train.py"),
            (Some("--max-tokens"), "512"),
            (Some("--tokenizer"), "gpt2"),
            (None, "--num-key-value-heads"),
            (Some("--num-key-value-heads"), "8"),
            (Some("-p"), "8080"),
            (None, "--lr=0.1"),
            (Some("-c"), "import time; time.sleep(3)"),
            (None, "tcp://10.0.0.1:29500"),
        ] {
            assert!(is_plain_argument(before, word), "{before:?} {word}");
        }
    }
}
