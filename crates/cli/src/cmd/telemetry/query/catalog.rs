//! What is at the paths: sources of events, bundles, and the sessions in them. Each source is read when it is asked for.

use std::path::PathBuf;

use rustc_hash::{FxHashMap, FxHashSet};
use stormlog_model::{Event, SessionStatus};
use stormlog_postmortem::bundle::Bundle;
use stormlog_store::{FoundSession, ReadOptions, Source, StoreError, sessions_in};

use crate::exit::CtrlC;

/// Everything at some paths.
pub(crate) struct Catalog {
    pub(crate) paths: Vec<PathBuf>,
    pub(crate) sources: Vec<Source>,
    pub(crate) bundles: Vec<Bundle>,
    /// What could not be read, a sentence each.
    pub(crate) problems: Vec<String>,
    /// Runs that were left out, a sentence each.
    pub(crate) skipped: Vec<String>,
    sessions: Option<Vec<(usize, FoundSession)>>,
    /// The sources again, so that one that is below two of the paths is taken once.
    known: FxHashSet<Source>,
    bundles_of_session: FxHashMap<String, usize>,
    statuses: FxHashMap<String, SessionStatus>,
}

impl Catalog {
    pub(crate) fn open(paths: &[PathBuf]) -> Self {
        let mut catalog = Catalog {
            paths: paths.to_vec(),
            sources: Vec::new(),
            bundles: Vec::new(),
            problems: Vec::new(),
            skipped: Vec::new(),
            sessions: None,
            known: FxHashSet::default(),
            bundles_of_session: FxHashMap::default(),
            statuses: FxHashMap::default(),
        };
        for path in paths {
            // Where this user may not write, the sessions are judged again below.
            drop(stormlog_catalog::run::finish_abandoned(path));
            match Source::find_known(path) {
                Ok(sources) => {
                    catalog.skipped.extend(sources.skipped.iter().map(StoreError::to_string));
                    sources.found.into_iter().for_each(|source| catalog.add(source));
                }
                Err(error) => catalog.problems.push(error.to_string()),
            }
        }
        catalog
    }

    fn add(&mut self, source: Source) {
        match &source {
            Source::OomBundle(path) => match Bundle::read(path) {
                Ok(bundle) => {
                    if let Some(session) = &bundle.session_id {
                        *self.bundles_of_session.entry(session.clone()).or_default() += 1;
                    }
                    self.bundles.push(bundle);
                }
                Err(error) => self.problems.push(error.to_string()),
            },
            _ => {
                if self.known.insert(source.clone()) {
                    self.sources.push(source);
                }
            }
        }
    }

    /// Every session of every source, with the number of its source.
    pub(crate) fn sessions(&mut self, ctrl_c: &CtrlC) -> anyhow::Result<&[(usize, FoundSession)]> {
        if self.sessions.is_none() {
            let mut found = Vec::new();
            for (number, source) in self.sources.iter().enumerate() {
                let sessions = sessions_in(std::slice::from_ref(source), &crate::cmd::is_dead, &|| {
                    ctrl_c.check().is_ok()
                });
                self.problems.extend(sessions.damaged.iter().map(StoreError::to_string));
                for session in &sessions.sessions {
                    let id = session.summary.session_id.clone();
                    self.statuses.entry(id).or_insert(session.summary.status);
                }
                found.extend(sessions.sessions.into_iter().map(|session| (number, session)));
                ctrl_c.check()?;
            }
            self.sessions = Some(found);
        }
        Ok(self.sessions.as_deref().unwrap_or_default())
    }

    /// The file that stands for a source: of a sink its first segment, as 0.4.3 names it.
    pub(crate) fn file_of(&self, number: usize) -> String {
        let source = &self.sources[number];
        let first = match source {
            Source::Sink(path) => stormlog_store::sink::segment_paths(path).into_iter().next(),
            _ => None,
        };
        first.unwrap_or_else(|| source.path().to_owned()).display().to_string()
    }

    /// How a session ended, by any source that knows it.
    pub(crate) fn status_of(&self, session_id: &str) -> SessionStatus {
        self.statuses.get(session_id).copied().unwrap_or(SessionStatus::Incomplete)
    }

    /// How many bundles a session left.
    pub(crate) fn bundle_count(&self, session_id: &str) -> usize {
        self.bundles_of_session.get(session_id).copied().unwrap_or(0)
    }

    /// Every event of every source, with the number of its source.
    pub(crate) fn each_event(
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
