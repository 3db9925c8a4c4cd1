//! Reads bundles for the view of crashes: the list by `catalog`, each row and page by `story`. What was read of a bundle is kept: it does not change.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use stormlog_catalog::bundles::bundles;
use stormlog_catalog::run::layout::DUMPS_DIRECTORY;
use stormlog_postmortem::bundle::{Bundle, BundleRow};
use stormlog_story::{Crash, Story, bundle_page, findings_if_small};

use crate::state::crashes::{CrashRow, CrashesLook};

/// Between two searches for bundles, and how much longer after a slow one.
const SEARCH_EVERY: Duration = Duration::from_secs(5);
const SEARCH_REST: u32 = 20;
/// A look reads rows for this long.
const LOOK: Duration = Duration::from_millis(200);
/// Sentences about what could not be read.
const MOST_PROBLEMS: usize = 8;

/// Reads for the view.
pub(crate) struct CrashesReader {
    roots: Vec<PathBuf>,
    listed: Vec<BundleRow>,
    problems: Vec<String>,
    searched: Option<(Instant, Duration)>,
    /// `None` for a bundle that cannot be read.
    known: HashMap<PathBuf, Option<Arc<Crash>>>,
    page: Option<(PathBuf, Result<String, String>)>,
}

impl CrashesReader {
    /// Bundles below the roots, and those of trackers in the current directory.
    pub(crate) fn new(mut roots: Vec<PathBuf>) -> Self {
        roots.push(DUMPS_DIRECTORY.into());
        CrashesReader {
            roots,
            listed: Vec::new(),
            problems: Vec::new(),
            searched: None,
            known: HashMap::new(),
            page: None,
        }
    }

    /// The list, and the page of the bundle that is requested; true where there is more to read.
    pub(crate) fn look(&mut self, asked: &Option<PathBuf>) -> (CrashesLook, bool) {
        let began = Instant::now();
        if self.searched.is_none_or(|(at, took)| at.elapsed() > SEARCH_EVERY.max(took * SEARCH_REST)) {
            self.search();
            self.searched = Some((Instant::now(), began.elapsed()));
        }
        match asked {
            Some(path) if self.page.as_ref().is_none_or(|(known, _)| known != path) => {
                self.page = Some((path.clone(), page(path)));
            }
            Some(_) => {}
            None => self.page = None,
        }
        let mut is_behind = false;
        for row in &self.listed {
            if self.known.contains_key(&row.path) {
                continue;
            }
            if began.elapsed() > LOOK {
                is_behind = true;
                break;
            }
            let read = Bundle::read(&row.path).ok().map(|bundle| Arc::new(Crash::of(&bundle)));
            self.known.insert(row.path.clone(), read);
        }
        let row = |bundle: &BundleRow| CrashRow {
            crash: self.known.get(&bundle.path).cloned().flatten(),
            bundle: bundle.clone(),
        };
        let rows = self.listed.iter().map(row).collect();
        (CrashesLook { rows, problems: self.problems.clone(), page: self.page.clone() }, is_behind)
    }

    fn search(&mut self) {
        self.listed.clear();
        self.problems.clear();
        for root in self.roots.iter().filter(|root| root.exists()) {
            match bundles(std::slice::from_ref(root)) {
                Ok(found) => {
                    self.listed.extend(found.listing.bundles);
                    let problems = found.listing.problems.iter().map(ToString::to_string);
                    self.problems.extend(problems.chain(found.unwritten));
                }
                Err(error) => self.problems.push(error.to_string()),
            }
        }
        self.problems.truncate(MOST_PROBLEMS);
        self.listed.sort_by(|a, b| (&b.created_at_utc, &b.path).cmp(&(&a.created_at_utc, &a.path)));
        self.listed.dedup_by(|a, b| a.path == b.path);
        let listed: HashSet<&PathBuf> = self.listed.iter().map(|row| &row.path).collect();
        self.known.retain(|path, _| listed.contains(path));
    }
}

/// The page of `stormlog oom show`.
fn page(path: &Path) -> Result<String, String> {
    let bundle = Bundle::read(path).map_err(|error| error.to_string())?;
    Ok(bundle_page(&bundle, &Story::of_bundle(&bundle, &findings_if_small)))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
mod tests {
    use super::*;

    #[test]
    fn bundle_of_an_older_release_is_listed_and_has_the_page_of_oom_show() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/peer-0.4.3/oom");
        let mut reader = CrashesReader::new(vec![root.clone()]);
        let (look, is_behind) = reader.look(&None);
        assert!(!is_behind && look.page.is_none() && look.problems.is_empty(), "{look:#?}");
        let row = &look.rows[0];
        assert_eq!(row.bundle.backend.as_deref(), Some("cuda"));
        let crash = row.crash.as_ref().unwrap();
        assert_eq!((crash.cause, crash.path.as_path()), (row.bundle.cause, row.bundle.path.as_path()));
        let (look, _) = reader.look(&Some(row.bundle.path.clone()));
        let (path, text) = look.page.unwrap();
        assert_eq!(path, row.bundle.path);
        let text = text.unwrap();
        let bundle = Bundle::read(&path).unwrap();
        assert_eq!(text, bundle_page(&bundle, &Story::of_bundle(&bundle, &findings_if_small)));
        assert!(text.contains("  cause ") && text.contains("  bundle "), "{text}");
    }

    #[test]
    fn path_that_is_not_a_bundle_is_a_sentence() {
        let directory = tempfile::tempdir().unwrap();
        let (look, _) = CrashesReader::new(Vec::new()).look(&Some(directory.path().to_owned()));
        let (_, text) = look.page.unwrap();
        assert!(text.unwrap_err().contains("not an OOM bundle"));
    }
}
