//! Bundle names, made and understood: 0.4.3's, and the one the original document shows.
//!
//! Must never put anything into a name that a path could be led astray by.

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;

/// How every directory starts that retention may touch.
pub(crate) const PREFIX: &str = "oom_dump_";
/// Longer backends are cut; file systems allow 255 bytes for the whole name.
const MAX_BACKEND: usize = 64;

/// What a bundle's name says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BundleName {
    /// When it was made, seconds since the epoch.
    pub created_at_s: i64,
    /// The process; `None` where the name does not say.
    pub pid: Option<u64>,
    /// The backend, as far as a name can spell it.
    pub backend: String,
    /// Counted per recorder.
    pub sequence: u64,
}

impl BundleName {
    /// The name of a new bundle: `oom_dump_<YYYYmmddTHHMMSSZ>_<pid>_<backend>_<seq>`.
    pub(crate) fn spell(created_at_ns: u64, pid: u64, backend: &str, sequence: u64) -> String {
        let stamp = timestamp(created_at_ns).strftime("%Y%m%dT%H%M%SZ");
        format!("{PREFIX}{stamp}_{pid}_{}_{sequence}", safe_backend(backend))
    }

    /// Reads a directory's name: 0.4.3's form or `oom_<backend>_<YYYYmmdd>_<HHMMSS>_<seq>`.
    pub fn parse(name: &str) -> Option<Self> {
        match name.strip_prefix(PREFIX) {
            Some(rest) => BundleName::parse_dump(rest),
            None => BundleName::parse_original(name.strip_prefix("oom_")?),
        }
    }

    fn parse_dump(rest: &str) -> Option<Self> {
        let (stamp, rest) = rest.split_once('_')?;
        let (pid, rest) = rest.split_once('_')?;
        let (backend, sequence) = rest.rsplit_once('_')?;
        Some(BundleName {
            created_at_s: seconds("%Y%m%dT%H%M%SZ", stamp)?,
            pid: Some(pid.parse().ok()?),
            backend: backend.to_owned(),
            sequence: sequence.parse().ok()?,
        })
    }

    fn parse_original(rest: &str) -> Option<Self> {
        let (rest, sequence) = rest.rsplit_once('_')?;
        let (rest, time) = rest.rsplit_once('_')?;
        let (backend, date) = rest.rsplit_once('_')?;
        Some(BundleName {
            created_at_s: seconds("%Y%m%d%H%M%S", &format!("{date}{time}"))?,
            pid: None,
            backend: backend.to_owned(),
            sequence: sequence.parse().ok()?,
        })
    }

    /// `2026-11-15T04:00:37Z`.
    pub fn created_at_utc(&self) -> String {
        let at = Timestamp::from_second(self.created_at_s).unwrap_or(Timestamp::UNIX_EPOCH);
        at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
    }
}

/// `2026-11-15T04:00:37Z`, as manifests say it.
pub(crate) fn utc_text(ns: u64) -> String {
    timestamp(ns).strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// A clock far beyond what a calendar holds is a broken clock; its bundle is still worth having.
fn timestamp(ns: u64) -> Timestamp {
    Timestamp::from_nanosecond(ns.into()).unwrap_or(Timestamp::MAX)
}

fn seconds(format: &str, text: &str) -> Option<i64> {
    if text.len() > 32 {
        return None;
    }
    let civil = DateTime::strptime(format, text).ok()?;
    Some(civil.to_zoned(TimeZone::UTC).ok()?.timestamp().as_second())
}

/// `re.sub("[^a-zA-Z0-9_-]+", "_", backend) or "unknown"`.
fn safe_backend(backend: &str) -> String {
    let mut safe = String::new();
    let mut replaced = false;
    for character in backend.chars() {
        if safe.len() >= MAX_BACKEND {
            break;
        }
        let is_safe = character.is_ascii_alphanumeric() || matches!(character, '_' | '-');
        if is_safe || !replaced {
            safe.push(if is_safe { character } else { '_' });
        }
        replaced = !is_safe;
    }
    if safe.is_empty() { "unknown".to_owned() } else { safe }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AT: u64 = 1_794_715_237_000_000_000;

    #[test]
    fn names_read_back() {
        let name = BundleName::spell(AT, 77, "cuda", 1);
        assert_eq!(name, "oom_dump_20261115T040037Z_77_cuda_1");
        let read = BundleName::parse(&name).unwrap();
        assert_eq!((read.pid, read.backend.as_str(), read.sequence), (Some(77), "cuda", 1));
        assert_eq!(read.created_at_utc(), utc_text(AT));
        let read = BundleName::parse("oom_cuda_20260303_152030_001").unwrap();
        assert_eq!((read.pid, read.backend.as_str(), read.sequence), (None, "cuda", 1));
        assert_eq!(read.created_at_utc(), "2026-03-03T15:20:30Z");
        assert_eq!(BundleName::parse("oom_my_gpu_20260303_152030_2").unwrap().backend, "my_gpu");
    }

    #[test]
    fn backends_cannot_lead_astray() {
        for (backend, safe) in
            [("a/../b", "a_b"), ("", "unknown"), ("/", "_"), ("mps:0 x", "mps_0_x"), ("é", "_")]
        {
            assert_eq!(safe_backend(backend), safe);
        }
        assert_eq!(safe_backend(&"x".repeat(5000)).len(), MAX_BACKEND);
    }

    #[test]
    fn unknown_names_are_rejected() {
        for name in [
            "",
            "oom_",
            "oom_dump_",
            "oom_dump_x_1_cuda_1",
            "oom_cuda_20260303_152030",
            "run",
            "oom_a_b_c_d",
            "oom_dump_20261315T040037Z_77_cuda_1",
            "oom_dump_20261115T040037Z_-7_cuda_1",
        ] {
            assert_eq!(BundleName::parse(name), None, "{name}");
        }
        assert!(BundleName::spell(u64::MAX, 1, "x", 1).starts_with(PREFIX));
    }
}
