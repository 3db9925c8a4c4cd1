//! The artifacts of a job's ranks, joined: files and directories go in, sessions come out, one of them selected.
//!
//! What belongs together follows 0.4.3's diagnostics (`stormlog.tui.distributed_diagnostics`): files without a session become one
//! session, inputs of one session each that name the same job become a session of the whole job, and a `diagnose` timeline
//! becomes samples of a rank. An input that cannot be read is a warning, never an error; a link below a directory is not followed.

mod input;
mod merge;
mod timeline;

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use stormlog_model::selection_order;
use stormlog_store::{LoadedSession, StoreError};

use merge::Merger;
use timeline::RankNumbers;

/// What was loaded.
#[derive(Debug, Default)]
pub struct RankArtifacts {
    /// Every session, the default first, sessions of whole jobs among them.
    pub sessions: Vec<LoadedSession>,
    /// The place of the selected one; `None` only without sessions.
    pub selected: Option<usize>,
    /// What is missing or damaged, each sentence once.
    pub warnings: Vec<String>,
    /// The files that sessions came from, sorted.
    pub sources: Vec<OsString>,
}

/// Loads absolute paths. Fails only where the named session is not there.
pub fn load_rank_artifacts(paths: &[PathBuf], session_id: Option<&str>) -> Result<RankArtifacts, StoreError> {
    let mut warnings = Vec::new();
    let mut sources = BTreeSet::new();
    let mut merger = Merger::default();
    let mut sessionless = Vec::new();
    let mut alone = BTreeSet::new();
    let mut ranks = RankNumbers::default();
    for path in paths {
        let input = input::load(path, &mut ranks);
        warnings.extend(input.warnings);
        for session in &input.sessions {
            sources.extend(session.sources.iter().map(|path| path.clone().into_os_string()));
        }
        if path.is_file() && is_sessionless(path, &input.sessions) {
            sessionless.extend(input.sessions);
            continue;
        }
        if let [only] = input.sessions.as_slice() {
            alone.insert(only.summary.session_id.clone());
        }
        merger.add(input.sessions);
    }
    merger.add(merge::sessionless(sessionless));
    let mut sessions = merger.finish();
    let jobs = merge::whole_jobs(&sessions, &alone);
    let of_jobs: BTreeSet<String> = jobs.iter().map(|job| job.summary.session_id.clone()).collect();
    sessions.extend(jobs);
    sessions.sort_by(|a, b| selection_order(&a.summary, &b.summary));
    warnings.extend(sessions.iter().flat_map(|session| session.warnings.iter().cloned()));
    let selected = match session_id {
        Some(id) => {
            let at = sessions.iter().position(|session| session.summary.session_id == id);
            Some(at.ok_or_else(|| StoreError::NoSuchSession(id.to_owned()))?)
        }
        None => default_session(&sessions, |session| of_jobs.contains(&session.summary.session_id))
            .or_else(|| default_session(&sessions, |_| true)),
    };
    Ok(RankArtifacts {
        sessions,
        selected,
        warnings: merge::unique(warnings),
        sources: sources.into_iter().collect(),
    })
}

/// The first session that qualifies; one without events only where there is no other.
fn default_session(sessions: &[LoadedSession], qualifies: impl Fn(&LoadedSession) -> bool) -> Option<usize> {
    let first = |needs_events: bool| {
        sessions.iter().position(|session| qualifies(session) && !(needs_events && session.events.is_empty()))
    };
    first(true).or_else(|| first(false))
}

/// Whether a flat file named no session: all it holds is in the one that was made of its path.
fn is_sessionless(path: &Path, sessions: &[LoadedSession]) -> bool {
    let kind = match input::extension(path).as_str() {
        "csv" => "csv",
        "json" | "jsonl" => "json",
        _ => return false,
    };
    let id = stormlog_model::legacy_session_id([path.to_string_lossy().as_ref(), kind]);
    !sessions.is_empty() && sessions.iter().all(|session| session.summary.session_id == id)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn event(session: Option<&str>, rank: u64, at: u64) -> String {
        let session = session.map_or(String::new(), |id| format!(r#""session_id":"{id}","#));
        format!(
            r#"{{{session}"timestamp":{at}.5,"event_type":"sample","memory_allocated":{at},"memory_reserved":9,"memory_change":0,"total_memory":100,"job_id":"j","rank":{rank},"local_rank":{rank},"world_size":2}}"#
        )
    }

    fn place() -> (tempfile::TempDir, PathBuf) {
        let directory = tempfile::tempdir().unwrap();
        let path = fs::canonicalize(directory.path()).unwrap();
        (directory, path)
    }

    #[test]
    fn inputs_of_one_session_each_become_a_session_of_their_job_which_is_selected() {
        let (_keep, root) = place();
        let paths: Vec<PathBuf> = (0..2)
            .map(|rank| {
                let path = root.join(format!("rank{rank}_events.json"));
                let events: Vec<String> =
                    (1..4).map(|at| event(Some(&format!("s{rank}")), rank, at)).collect();
                fs::write(&path, format!("[{}]", events.join(","))).unwrap();
                path
            })
            .collect();
        let loaded = load_rank_artifacts(&paths, None).unwrap();
        assert_eq!(loaded.sessions.len(), 3, "{:?}", loaded.warnings);
        let job = &loaded.sessions[loaded.selected.unwrap()];
        assert_eq!(job.summary.source, "stormlog.diagnostics.distributed");
        assert_eq!((job.events.len(), job.summary.world_size), (6, 2));
        assert!(job.events.iter().all(|event| event.head.session_id == job.summary.session_id));
        let named = load_rank_artifacts(&paths, Some("s1")).unwrap();
        assert_eq!(named.sessions[named.selected.unwrap()].summary.session_id, "s1");
        let error = load_rank_artifacts(&paths, Some("none")).unwrap_err();
        assert_eq!(error.to_string(), "Requested session_id not found: none");
    }

    #[test]
    fn files_without_a_session_become_one_and_equal_events_count_once() {
        let (_keep, root) = place();
        let paths: Vec<PathBuf> = (0..2)
            .map(|number| {
                let path = root.join(format!("{number}.json"));
                fs::write(&path, format!("[{},{}]", event(None, 0, 1), event(None, 1, 2 + number))).unwrap();
                path
            })
            .collect();
        let loaded = load_rank_artifacts(&paths, None).unwrap();
        assert_eq!(loaded.sessions.len(), 1, "{:?}", loaded.warnings);
        let times: Vec<u64> = loaded.sessions[0].events.iter().map(|event| event.timestamp_ns).collect();
        assert_eq!(times, [1_500_000_000, 2_500_000_000, 3_500_000_000]);
        assert_eq!(loaded.sessions[0].summary.source, "stormlog.diagnostics.legacy");
    }

    #[test]
    fn unreadable_artifact_gives_a_warning() {
        let (_keep, root) = place();
        fs::write(root.join("bad.json"), "{").unwrap();
        fs::write(root.join("note.txt"), "x").unwrap();
        let dead = root.join("empty");
        fs::create_dir(&dead).unwrap();
        let paths = [root.join("none"), root.join("bad.json"), root.join("note.txt"), dead.clone()];
        let loaded = load_rank_artifacts(&paths, None).unwrap();
        assert!(loaded.sessions.is_empty() && loaded.selected.is_none());
        let [missing, bad, text, empty] = loaded.warnings.as_slice() else { panic!("{:?}", loaded.warnings) };
        assert_eq!(missing, &format!("Path does not exist: {}", paths[0].display()));
        assert!(bad.starts_with(&format!("Failed to parse JSON telemetry file {}: ", paths[1].display())));
        assert_eq!(text, &format!("Unsupported artifact file type: {}", paths[2].display()));
        assert_eq!(empty, &format!("No telemetry event payloads found in directory: {}", dead.display()));
    }

    #[test]
    fn a_timeline_takes_its_rank_from_payload_then_path_then_the_next_free_number() {
        let (_keep, root) = place();
        for (name, extra) in [("a", r#""metadata":{"rank":"3"},"#), ("job-Rank_1-x", ""), ("local_rank7", "")]
        {
            fs::create_dir(root.join(name)).unwrap();
            let text =
                format!(r#"{{{extra}"timestamps":[1.0,1.25],"allocated":[5,"7"],"reserved":[8.9,8]}}"#);
            fs::write(root.join(name).join("telemetry_timeline.json"), text).unwrap();
        }
        let loaded = load_rank_artifacts(std::slice::from_ref(&root), None).unwrap();
        let mut ranks: Vec<(u64, u64)> = loaded
            .sessions
            .iter()
            .map(|session| &session.events[0].head.identity)
            .map(|identity| (identity.rank, identity.world_size))
            .collect();
        ranks.sort_unstable();
        assert_eq!(ranks, [(0, 4), (1, 4), (3, 4)], "{:?}", loaded.warnings);
        let last = loaded.sessions[0].events.last().unwrap();
        assert_eq!((last.counters.change(), last.head.sampling_interval_ms), (Some(2), 250));
        assert!(loaded.warnings.iter().all(|text| text.starts_with("Synthesized telemetry events from ")));
    }

    #[test]
    fn a_damaged_timeline_is_a_warning() {
        let (_keep, root) = place();
        let path = root.join("telemetry_timeline.json");
        for (text, expected) in [
            ("[]", "Timeline payload is not a JSON object: "),
            ("{\"timestamps\":[],\"allocated\":[1]}", "Timeline payload has no samples in "),
            ("{\"timestamps\":{},\"allocated\":[1]}", "Invalid timeline payload shape in "),
            ("{\"timestamps\":[null],\"allocated\":[1]}", "Failed to read timeline payload "),
            ("{\"timestamps\":[1],\"allocated\":[-1]}", "Failed to read timeline payload "),
            ("{\"timestamps\":[1e300],\"allocated\":[1]}", "Failed to read timeline payload "),
            ("{\"timestamps\":[1", "Failed to read timeline payload "),
        ] {
            fs::write(&path, text).unwrap();
            let loaded = load_rank_artifacts(std::slice::from_ref(&path), None).unwrap();
            assert!(loaded.warnings[0].starts_with(expected), "{text}: {:?}", loaded.warnings);
        }
    }
}
