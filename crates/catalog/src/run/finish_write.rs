//! Writes down the end of an abandoned run, for its owner or root: through handles of its directories, never through a link in them, and
//! in files of the directory's owner.

use std::ffi::OsStr;
use std::io;
use std::path::Path;

use rustix::process::geteuid;
use serde_json::Value;
use stormlog_files::Directory;
use stormlog_liveness::lock;
use stormlog_model::Record;
use stormlog_postmortem::bundle::{
    BundleContent, BundleWriter, Environment, Evidence, ExceptionText, Retention,
};
use stormlog_postmortem::{BundlePolicy, Cause};
use stormlog_store::json::write::write_indented;
use stormlog_store::recording::session_text;

use super::finish::{FinishedRun, FinishedSession};
use super::layout::{LOCKS_DIRECTORY, RUN_FILE, SESSION_FILE};
use super::memory_map;

/// Writes what was found. An error where this user may not, or where something is not what it should be.
pub(crate) fn write(finished: &FinishedRun) -> io::Result<()> {
    let run = Directory::open(&finished.path)?;
    let is_owner = run.owner()? == geteuid().as_raw();
    if !is_owner && !geteuid().is_root() {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    let policy = finished.record.get("bundle_policy").and_then(Value::as_str).and_then(BundlePolicy::of_word);
    let policy = policy.unwrap_or_default();
    for session in &finished.sessions {
        let name = session.directory.file_name().ok_or(io::ErrorKind::InvalidInput)?;
        let directory = run.directory(name)?;
        if session.verdict.cause != Cause::Unknown && policy.wants(&session.verdict, session.has_raised()) {
            // Without room for a bundle the session is still ended.
            let _ = write_bundle(&directory, finished, session);
        }
        directory.replace(SESSION_FILE, &session_text(&session.summary))?;
    }
    let mut text = Vec::new();
    write_indented(&mut text, &finished.record, 0)?;
    text.push(b'\n');
    run.replace(RUN_FILE, &text)?;
    if is_owner {
        remove_half_written(&finished.path);
        lock::sweep(&run, LOCKS_DIRECTORY, true);
    }
    Ok(())
}

/// Removes what the supervisor was writing when it was killed: a capture takes its place only when it is whole.
fn remove_half_written(run: &Path) {
    let below = |folder: &Path| std::fs::read_dir(folder).into_iter().flatten().flatten();
    for file in below(run).flat_map(|folder| below(&folder.path())) {
        if file.file_name().as_encoded_bytes().ends_with(b".bin.tmp") {
            let _ = std::fs::remove_file(file.path());
        }
    }
}

/// Makes the bundle in a directory of this user's own and copies it, for it is written by paths.
fn write_bundle(target: &Directory, finished: &FinishedRun, session: &FinishedSession) -> io::Result<()> {
    let unique = uuid::Uuid::new_v4().simple().to_string();
    let draft = Directory::create(&std::env::temp_dir().join(format!("stormlog-{unique}")), false)?;
    let copied = draft_bundle(draft.path(), finished, session)
        .ok_or_else(|| io::ErrorKind::Other.into())
        .and_then(|bundle| copy(&bundle, target));
    // A temporary directory that stays is the system's to clear.
    let _ = std::fs::remove_dir_all(draft.path());
    copied
}

fn draft_bundle(
    draft: &Path,
    finished: &FinishedRun,
    session: &FinishedSession,
) -> Option<std::path::PathBuf> {
    let FinishedSession { directory, summary, verdict, last_ns, exception, events } = session;
    let mut evidence = Evidence::from(verdict);
    evidence.memory_map = memory_map::read(directory);
    evidence.last_event_timestamp_ns = Some(*last_ns);
    let text = exception.as_ref().map(|(reported, _)| ExceptionText {
        type_name: &reported.type_name,
        module: &reported.module,
        message: &reported.message,
    });
    let mut metadata = Record::new();
    metadata.insert("run_directory".into(), finished.path.display().to_string().into());
    let content = BundleContent {
        created_at_ns: *last_ns,
        pid: u64::try_from(summary.pid).ok()?,
        backend: "cpu",
        reason: verdict.cause.as_str(),
        exception: text,
        context: Some(&verdict.sentence),
        session: Some(summary),
        custom_metadata: &metadata,
        environment: Environment { cwd: None, system: &Record::new() },
        evidence: &evidence,
    };
    let mut writer = BundleWriter::new(Retention::default());
    writer.write(draft, &content, events).ok().map(|written| written.path)
}

/// The manifest makes a directory a bundle, so it comes last.
fn copy(bundle: &Path, target: &Directory) -> io::Result<()> {
    const MANIFEST: &str = "manifest.json";
    let to = target.directory(bundle.file_name().ok_or(io::ErrorKind::InvalidInput)?)?;
    let mut names: Vec<_> = std::fs::read_dir(bundle)?.flatten().map(|entry| entry.file_name()).collect();
    names.sort_by_key(|name| name == OsStr::new(MANIFEST));
    names.into_iter().try_for_each(|name| to.replace(&name, &std::fs::read(bundle.join(&name))?))
}
