//! Why a program cannot be started: what was looked for and what to do, with the status a shell would give. Starts nothing itself.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use rustix::io::Errno;

use crate::exit::Exit;

/// A program that was not started.
#[derive(Debug)]
pub(crate) struct CannotStart {
    sentence: String,
    pub(crate) exit: Exit,
}

impl std::fmt::Display for CannotStart {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.sentence)
    }
}

impl std::error::Error for CannotStart {}

fn not_found(sentence: String) -> CannotStart {
    CannotStart { sentence, exit: Exit::NotFound }
}

fn no_program(sentence: String) -> CannotStart {
    CannotStart { sentence, exit: Exit::CannotExecute }
}

/// Looks a program up as the system will: before anything is written for its run.
pub(crate) fn look_up(program: &OsStr) -> Result<(), CannotStart> {
    let path = Path::new(program);
    let name = path.display();
    if !program.as_bytes().contains(&b'/') {
        return if is_on_path(program) { Ok(()) } else { Err(not_on_path(program)) };
    }
    match path.metadata() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Err(not_found(format!(
            "{name} does not exist{}",
            with_ending(path).map(|meant| format!("; did you mean {meant}?")).unwrap_or_default()
        ))),
        Err(error) => Err(no_program(format!("{name}: {error}"))),
        Ok(found) if found.is_dir() => {
            Err(no_program(format!("{name} is a directory; name a program or a script in it")))
        }
        Ok(found) if !is_executable(&found) => Err(no_program(format!(
            "{name} is not executable: run `chmod +x` on it, or name its interpreter, as in `stormlog run python3 {name}`"
        ))),
        Ok(_) => Ok(()),
    }
}

/// Why the system would not start what [`look_up`] found.
pub(crate) fn refused(program: &OsStr, error: &io::Error) -> CannotStart {
    let name = Path::new(program).display();
    match Errno::from_io_error(error) {
        Some(Errno::NOENT) => {
            not_found(format!("{name}: the interpreter in its first line, or its loader, does not exist"))
        }
        Some(Errno::NOEXEC) => no_program(format!(
            "{name} is neither a program for this machine nor a script with an interpreter in its first line; name the interpreter, as in `stormlog run sh {name}`"
        )),
        _ => no_program(format!("{name}: {error}")),
    }
}

fn not_on_path(program: &OsStr) -> CannotStart {
    let path = Path::new(program);
    let name = path.display();
    let words = program.to_string_lossy();
    let here = path.metadata().ok();
    let hint = match here {
        Some(found) if found.is_dir() => "the one here is a directory".to_owned(),
        Some(found) if is_executable(&found) => format!("the file here is ./{name}"),
        Some(_) => format!("the file here needs an interpreter, as in `stormlog run python3 {name}`"),
        None => match (with_ending(path), words.split_once(char::is_whitespace)) {
            (Some(meant), _) => format!("did you mean {meant}?"),
            (None, Some((first, _))) if is_on_path(OsStr::new(first)) => {
                format!(
                    "the whole command is quoted as one word; remove the quotes, as in `stormlog run {words}`"
                )
            }
            _ if words.ends_with(".py") => "there is no such file here either".to_owned(),
            _ if words == "python" && is_on_path(OsStr::new("python3")) => "did you mean python3?".to_owned(),
            _ => "check its spelling, or give its path".to_owned(),
        },
    };
    let folders = search_path();
    not_found(format!("{name} is not on PATH ({}); {hint}", Path::new(&folders).display()))
}

/// The Python file that a name without its ending stands for.
fn with_ending(path: &Path) -> Option<String> {
    let mut whole = path.as_os_str().to_owned();
    whole.push(".py");
    Path::new(&whole).is_file().then(|| Path::new(&whole).display().to_string())
}

fn search_path() -> OsString {
    // Without the variable the system looks here.
    std::env::var_os("PATH").unwrap_or_else(|| "/bin:/usr/bin".into())
}

fn is_on_path(program: &OsStr) -> bool {
    on_path(program).is_some()
}

/// The first executable file of that name on PATH.
pub(crate) fn on_path(program: &OsStr) -> Option<PathBuf> {
    let found = |path: &PathBuf| path.metadata().is_ok_and(|found| found.is_file() && is_executable(&found));
    if program.is_empty() {
        return None;
    }
    std::env::split_paths(&search_path()).map(|folder| folder.join(program)).find(found)
}

pub(crate) fn is_executable(found: &std::fs::Metadata) -> bool {
    found.permissions().mode() & 0o111 != 0
}
