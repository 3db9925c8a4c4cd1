//! `stormlog convert`: any telemetry in, one file out, record by record.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use serde_json::json;
use stormlog_model::Schema;
use stormlog_store::{Format, Output, ReadOptions, Source, SourcePosition, StoreError};

use super::trace;
use crate::exit::{CtrlC, Exit, UsageError};
use crate::progress::Progress;

pub(crate) struct Options {
    pub(crate) input: PathBuf,
    pub(crate) output: PathBuf,
    pub(crate) schema: i64,
    pub(crate) to: Option<String>,
    pub(crate) session_id: Option<String>,
    pub(crate) unknown_as_zero: bool,
    pub(crate) safe_csv: bool,
    pub(crate) lenient: bool,
    pub(crate) json: bool,
}

/// What became of the records.
#[derive(Default)]
struct Tally {
    written: u64,
    dropped: u64,
    first_problem: Option<String>,
    notes: Vec<String>,
    /// Counters that were unknown and written as 0.
    zeros: BTreeMap<&'static str, u64>,
}

pub(crate) fn run(options: &Options) -> anyhow::Result<Exit> {
    if let Some(format) = trace::format(options)? {
        return trace::run(options, format);
    }
    let ctrl_c = CtrlC::watch();
    let schema = Schema::from_number(options.schema).unwrap_or(stormlog_model::SCHEMA_LATEST);
    let sources = Source::find(&options.input)?;
    let mut output = open_output(options, schema)?;
    if options.safe_csv {
        output.guard_formulas();
    }
    let mut tally = Tally::default();
    let mut progress = Progress::new("events");
    for source in &sources {
        copy(source, options, schema, &mut output, &mut tally, &mut progress, &ctrl_c)?;
    }
    if let Some(session) = options.session_id.as_ref().filter(|_| tally.written == 0) {
        return Err(StoreError::NoSuchSession(session.clone()).into());
    }
    output.finish()?;
    drop(progress);
    tally.note_zeros();
    summarise(options, &tally)?;
    Ok(Exit::Ok)
}

fn open_output(options: &Options, schema: Schema) -> anyhow::Result<Output> {
    let is_stream = options.output == Path::new("-");
    let format = match &options.to {
        Some(name) => Format::of_name(name).ok_or_else(|| {
            UsageError(format!(
                "--to {name}: expected json, jsonl, csv, parquet, perfetto, chrome or tensorboard"
            ))
        })?,
        None if is_stream => {
            return Err(UsageError("to write to standard output, name a format with --to".into()).into());
        }
        None => Format::of_path(&options.output).ok_or_else(|| {
            let path = options.output.display();
            UsageError(format!(
                "{path}: the extension names no format; use .json, .jsonl, .csv or .parquet, or --to"
            ))
        })?,
    };
    if options.safe_csv && format != Format::Csv {
        return Err(UsageError("--safe-csv is for CSV; leave it out, or add --to csv".into()).into());
    }
    if is_stream {
        return Ok(Output::stream(Box::new(io::stdout()), format, schema)?);
    }
    Output::create(&options.output, format, schema).map_err(|error| match error {
        // A bad output path is not bad input: exit 1, not 5.
        StoreError::Io { path, source } => anyhow::Error::new(source).context(format!("{}", path.display())),
        other => other.into(),
    })
}

fn copy(
    source: &Source,
    options: &Options,
    schema: Schema,
    output: &mut Output,
    tally: &mut Tally,
    progress: &mut Progress,
    ctrl_c: &CtrlC,
) -> anyhow::Result<()> {
    let mut events = match source.events(&ReadOptions::default()) {
        Ok(events) => events,
        Err(error) if options.lenient => {
            tally.drop_one(error);
            return Ok(());
        }
        Err(error) => return Err(error.into()),
    };
    let mut number = 0;
    for event in events.by_ref() {
        ctrl_c.check()?;
        progress.step();
        number += 1;
        let mut event = match event {
            Ok(event) => event,
            Err(error) if options.lenient => {
                tally.drop_one(error);
                continue;
            }
            Err(error) => return Err(error.into()),
        };
        if options.session_id.as_ref().is_some_and(|session| *session != event.head.session_id) {
            continue;
        }
        if options.unknown_as_zero {
            for counter in event.zero_unknown(schema) {
                *tally.zeros.entry(counter.field().name()).or_default() += 1;
            }
        }
        match output.write(&event)? {
            Ok(()) => tally.written += 1,
            Err(mut problem) => {
                // What Schema::V4 cannot express does not exist, so this is about unknown counters.
                problem.message.push_str(", or write 0 instead with --unknown-as-zero");
                let position = SourcePosition::line(source.path(), number);
                let error = StoreError::record(position, problem);
                if !options.lenient {
                    return Err(error.into());
                }
                tally.drop_one(error);
            }
        }
    }
    tally.notes.extend(events.notes().into_iter().map(|note| format!("{}: {note}", source.path().display())));
    Ok(())
}

impl Tally {
    fn note_zeros(&mut self) {
        if !self.zeros.is_empty() {
            let counts: Vec<String> =
                self.zeros.iter().map(|(field, count)| format!("{field} ({count} times)")).collect();
            self.notes.push(format!("unknown, written as 0: {}", counts.join(", ")));
        }
    }

    fn drop_one(&mut self, error: StoreError) {
        self.dropped += 1;
        if self.first_problem.is_none() {
            self.first_problem = Some(error.to_string());
        }
    }
}

/// On standard error, for standard output may be the data.
fn summarise(options: &Options, tally: &Tally) -> io::Result<()> {
    let mut err = io::stderr().lock();
    if options.json {
        let outcome = json!({
            "written": tally.written, "dropped": tally.dropped, "first_problem": tally.first_problem,
            "notes": tally.notes, "unknown_as_zero": tally.zeros, "output": options.output.display().to_string(),
        });
        return writeln!(err, "{outcome}");
    }
    writeln!(err, "{} events written to {}", tally.written, options.output.display())?;
    if let Some(problem) = &tally.first_problem {
        writeln!(err, "{} damaged records dropped; the first: {problem}", tally.dropped)?;
    }
    tally.notes.iter().try_for_each(|note| writeln!(err, "note: {note}"))
}
