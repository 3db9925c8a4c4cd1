//! The one place that creates files.
//!
//! There are two kinds of file, by the origin of their names:
//!
//! - **Evidence** lives below a directory of ours, which may belong to another user or sit beside files that another user planted. It is
//!   created through a handle of its directory under a random name, never through a link, with mode 0600, and has one of three entry
//!   points: [`Draft`] replaces a whole file, [`create_new`] makes a file that grows in place (appended to or mapped), [`open_in_place`]
//!   writes into one that exists. [`Directory`] makes and opens the directories.
//! - **Outputs** are named by the user ([`Output`], [`write_output`]): they follow the umask and the user's own links, and what is not a
//!   regular file (`/dev/null`, a pipe) is written to, never renamed over. A whole directory of outputs is [`Directory::of_user`].
//!
//! Must never follow a link in the last component of an evidence path, never leave half a file under its final name, and never print.
#![forbid(unsafe_code)]

mod cache;
mod directory;
mod draft;
mod input;
mod output;
mod unnamed;

pub use cache::{cache_directories, install, private_directory};
pub use directory::{Directory, create_directory, create_new, open_in_place, replace};
pub use draft::{Draft, SUFFIX as DRAFT_SUFFIX};
pub use input::open_regular;
pub use output::{Existing, Output, link_output, write_output};
pub use unnamed::unnamed;
