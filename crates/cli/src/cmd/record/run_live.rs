//! `stormlog run --live`: the program runs as ever, and a screen shows its memory meanwhile. The two never share the terminal: what the
//! program prints goes to a file, whose end is shown when the screen is left.

use std::fs::File;
use std::io::{self, IsTerminal, Read, Seek, SeekFrom, Write};
use std::path::Path;
use std::thread;
use std::time::Duration;

use stormlog_catalog::run::layout::OUTPUT_FILE;
use stormlog_supervise::{RunError, RunOptions, RunOutcome, Running, Streams};
use stormlog_tui::LiveTarget;

use crate::exit::UsageError;

/// Lines of the program's output that are shown when the screen is left.
const LAST_LINES: usize = 20;
/// Bytes at the end of the output that are searched for them.
const END: u64 = 64 << 10;
/// Between two looks for more output, after the user left the screen.
const PAUSE: Duration = Duration::from_millis(100);

/// There must be something to draw on before the program is started.
pub(crate) fn check_terminal() -> anyhow::Result<()> {
    if stormlog_tui::has_screen() {
        return Ok(());
    }
    let sentence = "--live needs a terminal, and standard output is not one (or TERM is dumb): leave it out, and run `stormlog live` on the run's directory from a terminal";
    Err(UsageError(sentence.to_owned()).into())
}

/// Runs the program to its end, on screen as long as the user wants to see it.
pub(crate) fn run(options: &RunOptions) -> Result<RunOutcome, RunError> {
    let running = Running::start(options, streams)?;
    let target = LiveTarget::Path(running.directory().to_owned());
    let shown = stormlog_tui::live_until(&target, &|| running.has_ended());
    let mut out = io::stdout();
    if let Err(error) = shown {
        // The program has nothing to do with it and continues.
        let _ = writeln!(io::stderr(), "stormlog: the live screen stopped: {error}; the program continues");
    }
    // A terminal that is gone needs no output; the file has it.
    let mut output = Output::at_the_end(running.directory(), &mut out);
    while !running.has_ended() {
        output.pass_on(&mut out);
        thread::sleep(PAUSE);
    }
    output.pass_on(&mut out);
    Ok(running.wait())
}

/// Where all of the output is.
pub(crate) fn say_more(out: &mut impl Write, run: &Path) -> io::Result<()> {
    let path = run.join(OUTPUT_FILE);
    match path.metadata() {
        Ok(file) if file.len() > 0 => writeln!(out, "  printed   {}", path.display()),
        _ => Ok(()),
    }
}

/// The terminal is the screen's: what would have gone to it goes to a file, and the program gets no keys.
fn streams(run: &Path) -> io::Result<Streams> {
    let file = stormlog_files::create_new(&run.join(OUTPUT_FILE))?;
    rustix::fs::fcntl_setfl(&file, rustix::fs::OFlags::APPEND)?;
    let input = io::stdin().is_terminal().then(|| File::open("/dev/null")).transpose()?;
    let error = io::stderr().is_terminal().then(|| file.try_clone()).transpose()?;
    Ok(Streams { input, output: Some(file), error })
}

/// The program's output, as far as it is not on the terminal yet.
struct Output(Option<File>);

impl Output {
    /// From its last lines on; says how much came before.
    fn at_the_end(run: &Path, out: &mut impl Write) -> Output {
        let found = stormlog_files::open_regular(&run.join(OUTPUT_FILE)).and_then(|mut file| {
            let end = file.seek(SeekFrom::End(0))?;
            let start = end.saturating_sub(END);
            file.seek(SeekFrom::Start(start))?;
            let mut bytes = Vec::new();
            (&mut file).take(END).read_to_end(&mut bytes)?;
            let skipped = start + before_last_lines(&bytes) as u64;
            file.seek(SeekFrom::Start(skipped))?;
            Ok((file, skipped > 0))
        });
        if let Ok((_, true)) = found {
            let _ = writeln!(out, "… the end of what the program printed:");
        }
        Output(found.ok().map(|(file, _)| file))
    }

    fn pass_on(&mut self, out: &mut impl Write) {
        if let Some(file) = &mut self.0 {
            let _ = io::copy(file, out).and_then(|_| out.flush());
        }
    }
}

/// How many bytes come before the last lines.
fn before_last_lines(bytes: &[u8]) -> usize {
    let whole = bytes.strip_suffix(b"\n").unwrap_or(bytes);
    let ends = whole.iter().enumerate().rev().filter(|(_, byte)| **byte == b'\n');
    ends.map(|(at, _)| at + 1).nth(LAST_LINES - 1).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_last_lines() {
        let text: String = (0..50).map(|line| format!("{line}\n")).collect();
        let kept = &text[before_last_lines(text.as_bytes())..];
        assert_eq!(kept.lines().count(), LAST_LINES);
        assert!(kept.starts_with("30\n") && kept.ends_with("49\n"));
        let open = text.trim_end();
        assert!(
            open[before_last_lines(open.as_bytes())..].starts_with("30\n"),
            "the last line may not be over"
        );
        assert_eq!(before_last_lines(b"one\ntwo"), 0);
        assert_eq!(before_last_lines(b""), 0);
    }
}
