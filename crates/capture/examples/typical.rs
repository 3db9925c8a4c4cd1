//! Makes a dictionary for `src/typical.rs`: `typical CAPTURE PREFIX OUT`, from a capture of `typical/imports.py` under a Python that is
//! installed below PREFIX. To be run once for a version of CPython, never again for one that was released.

use std::path::Path;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [capture, prefix, out] = &arguments[..] else { return Err("typical CAPTURE PREFIX OUT".into()) };
    Ok(std::fs::write(out, stormlog_capture::make_typical(Path::new(capture), prefix)?)?)
}
