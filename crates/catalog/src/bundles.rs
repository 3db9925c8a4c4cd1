//! The bundles at some paths, whichever program wrote them. What a killed supervisor left is finished first, because its bundles are written then.

use std::path::PathBuf;

use stormlog_postmortem::bundle::{Listing, list};
use stormlog_store::StoreError;

use crate::run::finish_abandoned;

/// What was found.
#[derive(Debug, Default)]
pub struct Bundles {
    /// The bundles, the oldest first.
    pub listing: Listing,
    /// Sentences about ends whose bundles only the run's owner may write.
    pub unwritten: Vec<String>,
}

/// The bundles at and below the paths.
pub fn bundles(paths: &[PathBuf]) -> Result<Bundles, StoreError> {
    let mut found = Bundles::default();
    for path in paths {
        let finished = finish_abandoned(path);
        let sessions = finished.into_iter().filter(|run| !run.is_written).flat_map(|run| run.sessions);
        found.unwritten.extend(sessions.map(|session| session.verdict.sentence));
        found.listing.append(list(path)?);
    }
    Ok(found)
}
