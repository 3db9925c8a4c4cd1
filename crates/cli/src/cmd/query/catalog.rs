//! What is at the paths: sources of events, bundles, and the sessions in them. Each source is read when it is asked for.

use std::path::PathBuf;

use stormlog_event::{Event, SessionStatus};
use stormlog_record::bundle::Bundle;
use stormlog_store::{FoundSession, ReadOptions, Source, StoreError, find_sessions};

use crate::exit::CtrlC;

/// Everything at some paths.
pub(super) struct Catalog {
    pub(super) paths: Vec<PathBuf>,
    pub(super) sources: Vec<Source>,
    pub(super) bundles: Vec<Bundle>,
    /// What could not be read, a sentence each.
    pub(super) problems: Vec<String>,
    sessions: Option<Vec<(usize, FoundSession)>>,
}

impl Catalog {
    pub(super) fn open(paths: &[PathBuf]) -> Self {
        let mut catalog = Catalog {
            paths: paths.to_vec(),
            sources: Vec::new(),
            bundles: Vec::new(),
            problems: Vec::new(),
            sessions: None,
        };
        for path in paths {
            // A run whose supervisor was killed too is finished by whoever looks at it first.
            stormlog_supervise::resume(path);
            match Source::find(path) {
                Ok(found) => found.into_iter().for_each(|source| catalog.add(source)),
                Err(error) => catalog.problems.push(error.to_string()),
            }
        }
        catalog
    }

    fn add(&mut self, source: Source) {
        match &source {
            Source::OomBundle(path) => match Bundle::read(path) {
                Ok(bundle) => self.bundles.push(bundle),
                Err(error) => self.problems.push(error.to_string()),
            },
            _ if self.sources.contains(&source) => {}
            _ => self.sources.push(source),
        }
    }

    /// Every session of every source, with the number of its source.
    pub(super) fn sessions(&mut self, ctrl_c: &CtrlC) -> anyhow::Result<&[(usize, FoundSession)]> {
        if self.sessions.is_none() {
            let mut found = Vec::new();
            let is_dead = |summary: &stormlog_event::SessionSummary| {
                u32::try_from(summary.pid).is_ok_and(|pid| !stormlog_supervise::is_alive(pid))
                    && summary.host == rustix::system::uname().nodename().to_string_lossy()
            };
            for (number, source) in self.sources.iter().enumerate() {
                match find_sessions(source.path(), &is_dead, &|| ctrl_c.check().is_ok()) {
                    Ok(sessions) => {
                        self.problems.extend(sessions.damaged.iter().map(StoreError::to_string));
                        found.extend(sessions.sessions.into_iter().map(|session| (number, session)));
                    }
                    Err(error) => self.problems.push(error.to_string()),
                }
                ctrl_c.check()?;
            }
            self.sessions = Some(found);
        }
        Ok(self.sessions.as_deref().unwrap_or_default())
    }

    /// The file that stands for a source: of a sink its first segment, as 0.4.3 names it.
    pub(super) fn file_of(&self, number: usize) -> String {
        let source = &self.sources[number];
        let first = match source {
            Source::Sink(path) => stormlog_store::sink::segment_paths(path).into_iter().next(),
            _ => None,
        };
        first.unwrap_or_else(|| source.path().to_owned()).display().to_string()
    }

    /// How a session ended, by any source that knows it.
    pub(super) fn status_of(&self, session_id: &str) -> SessionStatus {
        let sessions = self.sessions.iter().flatten();
        let found =
            sessions.map(|(_, session)| &session.summary).find(|summary| summary.session_id == session_id);
        found.map_or(SessionStatus::Incomplete, |summary| summary.status)
    }

    /// How many bundles a session left.
    pub(super) fn bundle_count(&self, session_id: &str) -> usize {
        self.bundles.iter().filter(|bundle| bundle.session_id.as_deref() == Some(session_id)).count()
    }

    /// Every event of every source, with the number of its source.
    pub(super) fn each_event(
        &mut self,
        ctrl_c: &CtrlC,
        mut take: impl FnMut(usize, Event),
    ) -> anyhow::Result<()> {
        // Damage is told once, by whoever looks first.
        let is_told = self.sessions.is_some();
        for (number, source) in self.sources.iter().enumerate() {
            // What a diagnose run sampled is in its own file, not telemetry of the program.
            if matches!(source, Source::DiagnoseBundle(_)) {
                continue;
            }
            let events = match source.events(&ReadOptions::default()) {
                Ok(events) => events,
                Err(error) => {
                    if !is_told {
                        self.problems.push(error.to_string());
                    }
                    continue;
                }
            };
            for event in events {
                ctrl_c.check()?;
                match event {
                    Ok(event) => take(number, event),
                    Err(error) if !is_told => self.problems.push(error.to_string()),
                    Err(_) => {}
                }
            }
        }
        Ok(())
    }
}
