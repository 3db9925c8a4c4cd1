//! What the programs share: events out of a file.

use std::error::Error;
use std::path::Path;

use stormlog_model::Event;
use stormlog_store::{ReadOptions, Source};

/// A program's outcome.
pub type Outcome<T = ()> = Result<T, Box<dyn Error>>;

/// The events of a JSON file, at most `most`.
pub fn events(path: &Path, most: usize) -> Outcome<Vec<Event>> {
    let found = Source::Json(path.to_owned()).events(&ReadOptions::default())?;
    Ok(found.take(most).collect::<Result<_, _>>()?)
}
