//! The flight recorder of `track`, under each of its names: the last events of a recorded process go into a bundle when it is killed.

use std::io::{self, Write};
use std::path::PathBuf;

use serde_json::Value;
use stormlog_model::Record;
use stormlog_postmortem::bundle::{BundleContent, BundleWriter, Environment, Evidence, Retention};
use stormlog_postmortem::{Cause, verdict::Verdict};

use crate::cmd::record::watch::{Reason, Screen, WatchSession, WatchTargets};

/// Directory for bundles, and how many.
pub(crate) struct Oom {
    pub(crate) directory: PathBuf,
    pub(crate) buffer_size: usize,
    pub(crate) retention: Retention,
}

/// A recorder with the memory for its bundle taken.
pub(crate) struct Flight<'a> {
    oom: &'a Oom,
    writer: BundleWriter,
}

impl<'a> Flight<'a> {
    pub(crate) fn new(oom: &'a Oom) -> Self {
        Flight { oom, writer: BundleWriter::new(oom.retention) }
    }

    /// The bundle of a process that did not exit by itself.
    pub(crate) fn dump(
        self,
        watch: &WatchSession,
        reason: &Reason,
        command: &str,
    ) -> anyhow::Result<Option<PathBuf>> {
        let Reason::Departed(departure) = reason else { return Ok(None) };
        match &departure.verdict {
            Some(verdict) if verdict.cause != Cause::Exit => self.write(watch, verdict, command).map(Some),
            _ => Ok(None),
        }
    }

    /// The evidence of a death, with the last events.
    fn write(mut self, watch: &WatchSession, verdict: &Verdict, command: &str) -> anyhow::Result<PathBuf> {
        let session = watch.group.session();
        let evidence = Evidence::from(verdict);
        let custom = Record::from_iter([("command".to_owned(), Value::from(command))]);
        let content = BundleContent {
            created_at_ns: stormlog_store::wall_ns(),
            pid: watch.target.as_ref().map_or_else(std::process::id, |target| target.pid()).into(),
            backend: watch.parts.iter().find(|part| part.is_gpu()).map_or("cpu", |part| &part.backend),
            reason: verdict.cause.as_str(),
            exception: None,
            context: Some("stormlog.track"),
            session: session.as_ref(),
            custom_metadata: &custom,
            environment: Environment { cwd: None, system: &Record::new() },
            evidence: &evidence,
        };
        Ok(self.writer.write(&self.oom.directory, &content, watch.group.flight())?.path)
    }
}

/// The lines 0.4.3 prints, and a warning where no process can die.
pub(crate) fn announce(screen: &mut Screen, oom: &Oom, found: &WatchTargets) -> io::Result<()> {
    screen.line("OOM flight recorder enabled:");
    screen.line(&format!("  Dump directory: {}", oom.directory.display()));
    screen.line(&format!("  Buffer size: {} events", oom.buffer_size));
    screen.line(&format!("  Max dumps: {}", oom.retention.max_bundles));
    screen.line(&format!("  Max total size: {} MB", oom.retention.max_total_bytes >> 20));
    if found.target.is_none() {
        let why = "without --pid there is no program to record the end of; give --pid";
        writeln!(io::stderr(), "Warning: --oom-flight-recorder: {why}")?;
    }
    Ok(())
}

/// The buffer of `--oom-buffer-size`: nothing or less than nothing is as many as the tracker keeps.
pub(crate) fn buffer_size(asked: Option<i64>, max_events: usize) -> usize {
    asked.and_then(|size| usize::try_from(size).ok()).filter(|size| *size > 0).unwrap_or(max_events)
}
