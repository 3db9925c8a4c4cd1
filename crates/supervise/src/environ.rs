//! Who a process is in a distributed job, by the environment its launcher started it with.

use serde_json::Value;
use stormlog_model::{Env, Identity, IdentityInputs, Problem, resolve_identity};

/// More of an environment is not read.
const MOST: usize = 1 << 20;

/// Rank and job of a process: what is given explicitly first, then its environment. Of a process that ended before that
/// could be read, our own, which it started with, when `or_ours`.
pub(crate) fn identity_of(
    pid: u32,
    explicit: [Option<&Value>; 4],
    or_ours: bool,
) -> Result<Identity, Problem> {
    let mut text = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
    text.truncate(MOST);
    let lookup: &Env<'_> = &|name: &str| {
        if text.is_empty() && or_ours {
            return std::env::var(name).ok();
        }
        let mut entries = text.split(|byte| *byte == 0);
        let value = entries.find_map(|entry| entry.strip_prefix(name.as_bytes())?.strip_prefix(b"="))?;
        Some(String::from_utf8_lossy(value).into_owned())
    };
    resolve_identity(&IdentityInputs { explicit, env: Some(lookup), ..IdentityInputs::default() })
}
