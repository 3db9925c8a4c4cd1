//! Makes a dictionary for `src/dictionary.rs`: `make_dictionary CAPTURE PREFIX OUT`, from a finished capture of `dictionaries/imports.py`
//! under a Python that is installed below PREFIX:
//!
//! ```text
//! stormlog run --heap --output imports.bin -- PREFIX/bin/python3 crates/capture/dictionaries/imports.py
//! cargo run --release -p stormlog-capture --features files --example make_dictionary -- imports.bin PREFIX crates/capture/dictionaries/cpython-3.11.zst
//! ```
//!
//! To be run once for a version of CPython in a version of the format, never again for one that was released. The present ones are of
//! CPython 3.11.7, 3.12.1 and 3.13.0 with the GNU C library 2.36, and of 3.14.10 with 2.43.

use std::path::Path;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [capture, prefix, out] = &arguments[..] else {
        return Err("make_dictionary CAPTURE PREFIX OUT".into());
    };
    Ok(std::fs::write(out, stormlog_capture::make_dictionary(Path::new(capture), prefix)?)?)
}
