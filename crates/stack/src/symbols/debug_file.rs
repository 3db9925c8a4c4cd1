//! Where the debug information of a module is, when it was split off: by build id, then by the name the module gives.

use std::format;
use std::path::{Path, PathBuf};
use std::string::{String, ToString};
use std::vec::Vec;

use object::{Object, ReadCache};

/// What a module's file says of itself.
pub(super) struct Facts {
    pub build_id: Vec<u8>,
    debug_link: Option<PathBuf>,
}

/// Where distributions put debug files.
const DEBUG_ROOT: &str = "/usr/lib/debug";

/// Reads build id and debug link; the error says what is wrong with the file.
pub(super) fn facts(path: &Path) -> Result<Facts, String> {
    let cache = ReadCache::new(stormlog_files::open_regular(path).map_err(|error| error.to_string())?);
    let file = object::File::parse(&cache).map_err(|error| error.to_string())?;
    let build_id = file.build_id().ok().flatten().unwrap_or_default().to_vec();
    let debug_link = file.gnu_debuglink().ok().flatten().and_then(|(name, _)| {
        let name = str::from_utf8(name).ok()?;
        // a plain file name: a `/` could lead out of the directories that are searched
        (!name.contains('/')).then(|| PathBuf::from(name))
    });
    Ok(Facts { build_id, debug_link })
}

/// The debug file of `path`, if there is one with the same build id. Without a build id nothing proves that it belongs.
pub(super) fn find(path: &Path, facts: &Facts) -> Option<PathBuf> {
    let (first, rest) = facts.build_id.split_first()?;
    let by_id = Path::new(DEBUG_ROOT)
        .join(".build-id")
        .join(format!("{first:02x}"))
        .join(format!("{}.debug", super::hex(rest)));
    let folder = path.parent()?;
    let by_link = facts.debug_link.iter().flat_map(|name| {
        let under_root = Path::new(DEBUG_ROOT).join(folder.strip_prefix("/").unwrap_or(folder)).join(name);
        [folder.join(name), folder.join(".debug").join(name), under_root]
    });
    [by_id]
        .into_iter()
        .chain(by_link)
        .filter(|candidate| candidate != path && candidate.is_file())
        .find(|candidate| self::facts(candidate).is_ok_and(|found| found.build_id == facts.build_id))
}
