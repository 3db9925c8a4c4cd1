//! Which view a path belongs to. Looks at its name and kind only.

use std::path::Path;

use stormlog_catalog::frameworks::FrameworkSourceKind;
use stormlog_catalog::run::RunDirectory;
use stormlog_postmortem::bundle::BundleName;

use crate::app::ViewName;

/// The view that opens the path; `None` for a directory of runs and for what is not there.
pub(crate) fn kind_of(path: &Path) -> Option<ViewName> {
    if RunDirectory::open(path).is_some() {
        return Some(ViewName::Process);
    }
    let name = path.file_name()?.to_str()?;
    if BundleName::parse(name).is_some() {
        return Some(ViewName::Crashes);
    }
    if !path.is_file() {
        return None;
    }
    Some(match FrameworkSourceKind::of_name(path) {
        Some(FrameworkSourceKind::Snapshot) => ViewName::Frameworks,
        _ => ViewName::Process,
    })
}
