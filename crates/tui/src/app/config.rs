//! What the user set in `$XDG_CONFIG_HOME/stormlog/config.toml`. A file that cannot be understood is an error that names the line; it is never written.

use std::io::Read;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::ViewName;
use crate::view::theme::Theme;

/// A configuration is a page of text.
const MAX_BYTES: u64 = 1 << 20;

/// Why the configuration cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// It cannot be read.
    #[error("{}: {source}; correct or remove the file", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system reported.
        source: std::io::Error,
    },
    /// It is not TOML, or has a key or a value that does not exist.
    #[error("{}: {reason}; see docs/tui.md for the keys", path.display())]
    Content {
        /// The file.
        path: PathBuf,
        /// What is wrong, with its line.
        reason: String,
    },
}

/// The settings of the terminal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// Clicks and the wheel are ours; a terminal then selects text with Shift held.
    pub mouse: bool,
    /// Colours; `None`: unless `NO_COLOR` asks for none.
    pub colours: Option<bool>,
    /// Letters of ASCII only; `None`: where the locale has no others.
    pub ascii: Option<bool>,
    /// The view to begin with.
    pub view: ViewName,
    /// Directories of runs that are shown where none is named.
    pub directories: Vec<PathBuf>,
}

impl Default for Config {
    fn default() -> Self {
        Config { mouse: true, colours: None, ascii: None, view: ViewName::Overview, directories: Vec::new() }
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct File {
    tui: Tui,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Tui {
    mouse: Option<bool>,
    colours: Option<bool>,
    ascii: Option<bool>,
    view: Option<String>,
    directories: Vec<PathBuf>,
}

impl Config {
    /// The user's file, where there is one.
    pub fn read() -> Result<Config, ConfigError> {
        match place() {
            Some(path) => Config::read_from(&path),
            None => Ok(Config::default()),
        }
    }

    /// The file at a path; the defaults where there is none.
    pub fn read_from(path: &Path) -> Result<Config, ConfigError> {
        let io = |source| ConfigError::Io { path: path.to_owned(), source };
        let file = match stormlog_files::open_regular(path) {
            Ok(file) => file,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Config::default()),
            Err(error) => return Err(io(error)),
        };
        let mut text = String::new();
        file.take(MAX_BYTES).read_to_string(&mut text).map_err(io)?;
        let content = |reason| ConfigError::Content { path: path.to_owned(), reason };
        let file: File = toml::from_str(&text).map_err(|error| content(error.to_string()))?;
        let usual = Config::default();
        let view = match file.tui.view {
            Some(word) => ViewName::of_word(&word)
                .ok_or_else(|| content(format!("tui.view: there is no view {word:?}")))?,
            None => usual.view,
        };
        Ok(Config {
            mouse: file.tui.mouse.unwrap_or(usual.mouse),
            colours: file.tui.colours,
            ascii: file.tui.ascii,
            view,
            directories: file.tui.directories,
        })
    }

    pub(crate) fn theme(&self) -> Theme {
        Theme::from_environment().with(self.colours, self.ascii)
    }
}

/// An empty or relative `XDG_CONFIG_HOME` does not count, as its specification has it.
fn place() -> Option<PathBuf> {
    let set = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let folder = set("XDG_CONFIG_HOME").or_else(|| set("HOME").map(|home| home.join(".config")))?;
    Some(folder.join("stormlog").join("config.toml"))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Config, ConfigError> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config.toml");
        std::fs::write(&path, text).unwrap();
        Config::read_from(&path)
    }

    #[test]
    fn settings_are_read_and_a_missing_file_is_the_defaults() {
        let config =
            read("[tui]\nmouse = false\nascii = true\nview = \"ranks\"\ndirectories = [\"/runs\"]\n")
                .unwrap();
        let wanted = Config {
            mouse: false,
            ascii: Some(true),
            view: ViewName::Ranks,
            directories: vec!["/runs".into()],
            ..Config::default()
        };
        assert_eq!(config, wanted);
        assert_eq!(read("").unwrap(), Config::default());
        assert_eq!(Config::read_from(Path::new("/nowhere/config.toml")).unwrap(), Config::default());
    }

    #[test]
    fn wrong_settings_are_named_with_their_line() {
        for (text, word) in
            [("[tui]\nmous = true", "line 2"), ("[tui]\nview = \"page\"", "page"), ("tui", "line 1")]
        {
            let error = read(text).unwrap_err().to_string();
            assert!(error.contains(word), "{text}: {error}");
        }
    }
}
