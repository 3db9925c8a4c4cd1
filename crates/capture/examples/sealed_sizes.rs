//! What each aid of sealing is worth: `sealed_sizes LIVE…` seals copies of live files (`heap.bin.live`, of a program recorded without a compactor)
//! with and without the model of the allocator and the dictionary, and prints bytes and milliseconds. `docs/design/capture-format.md` has the results.
//!
//! ```text
//! LD_PRELOAD=libstormlog_hook.so STORMLOG_HEAP='/tmp/heap.bin' python3 program.py
//! cargo run -p stormlog-capture --features files --example sealed_sizes -- /tmp/heap.bin.live
//! ```

use std::io::Write;
use std::path::PathBuf;
use std::time::Instant;

use stormlog_capture::{Aids, Compactor, Options};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut out = std::io::stdout().lock();
    for live in std::env::args_os().skip(1).map(PathBuf::from) {
        for (model, dictionary) in [(true, true), (false, true), (true, false), (false, false)] {
            let scratch = std::env::temp_dir().join(format!("sealed-sizes-{}", std::process::id()));
            std::fs::copy(&live, scratch.with_extension("live"))?;
            let options = Options { aids: Aids { model, dictionary }, ..Options::default() };
            let begun = Instant::now();
            Compactor::open(&scratch, options)?.finish(serde_json::json!({"exit_code": 0}))?;
            let took = begun.elapsed().as_millis();
            let bytes = std::fs::metadata(&scratch)?.len();
            writeln!(
                out,
                "{} model={model} dictionary={dictionary} {bytes} bytes {took} ms",
                live.display()
            )?;
            std::fs::remove_file(&scratch)?;
        }
    }
    Ok(())
}
