//! `stormlog diff A B`: what two captures held, compared. What a path is, is looked up first: more kinds of files can be compared
//! by adding them to [`Kind`].

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use stormlog_catalog::cuda_oom::snapshot_at;
use stormlog_heap_report::diff::{DiffRow, diff};
use stormlog_heap_report::rows::By;
use stormlog_heap_report::{Ask, HeapQuery, Reading};
use stormlog_model::format_bytes;
use stormlog_model::memory::Selection;
use stormlog_render::flamegraph::{self, FlameGraph};
use stormlog_torch::SnapshotMoment;

use super::table::named;
use super::{Output, Waiting, choose, export, warn_of_cut};
use crate::cmd::snapshot::diff as snapshot_diff;
use crate::exit::{Exit, UsageError};
use crate::table::Table;

/// Functions of a stack that are named.
const CALLERS: usize = 4;

pub(crate) struct Options {
    pub(crate) a: PathBuf,
    pub(crate) b: PathBuf,
    /// Of heap captures: whose memory.
    pub(crate) memory: Option<Selection>,
    pub(crate) by: By,
    pub(crate) at: SnapshotMoment,
    pub(crate) json: bool,
    pub(crate) html: bool,
    pub(crate) output: Output,
    pub(crate) top: usize,
}

/// What can be compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Heap,
    Snapshot,
}

/// What a path is. A directory is asked for its heap capture first, then for a snapshot.
fn kind(path: &Path) -> Kind {
    let is_snapshot = match path.is_dir() {
        true => stormlog_heap_report::find(path, None).is_err() && snapshot_at(path).is_ok(),
        false => stormlog_torch::is_snapshot(path),
    };
    if is_snapshot { Kind::Snapshot } else { Kind::Heap }
}

pub(crate) fn run(options: &Options) -> anyhow::Result<Exit> {
    match (kind(&options.a), kind(&options.b)) {
        (Kind::Heap, Kind::Heap) => heaps(options),
        (Kind::Snapshot, Kind::Snapshot) => snapshot_diff::run(options),
        (a, _) => {
            let (heap, snapshot) =
                if a == Kind::Heap { (&options.a, &options.b) } else { (&options.b, &options.a) };
            Err(UsageError(format!(
                "{} is an allocator snapshot and {} is not: compare two captures or two snapshots",
                snapshot.display(),
                heap.display()
            ))
            .into())
        }
    }
}

fn heaps(options: &Options) -> anyhow::Result<Exit> {
    let query = match &options.at {
        SnapshotMoment::Peak => HeapQuery::Peak,
        SnapshotMoment::End => HeapQuery::Leaks,
        other => {
            return Err(UsageError(format!(
                "unknown moment {other}: heap captures are compared at their peak or at their end"
            ))
            .into());
        }
    };
    let read = |path: &Path| -> anyhow::Result<Reading> {
        let chosen = choose(path, None, options.memory)?;
        let _waiting = Waiting::for_file(&chosen.path);
        let reading = Reading::of(&chosen.path, None, Ask { query, memory: options.memory })?;
        warn_of_cut(&reading.end)?;
        Ok(reading)
    };
    let (a, b) = (read(&options.a)?, read(&options.b)?);
    let (held_a, held_b) = (a.stack_profile(), b.stack_profile());
    let found = diff(&held_a, &held_b);
    if options.html {
        let (before, after) = (held_a.whole().bytes, held_b.whole().bytes);
        let graph = FlameGraph {
            title: format!("{}, before and after", b.title()),
            subtitle: format!("{} → {}", a.chosen.path.display(), b.chosen.path.display()),
            facts: [
                ("before", format_bytes(before)),
                ("after", format_bytes(after)),
                ("difference", signed(after as i64 - before as i64)),
            ]
            .map(|(name, value)| (name.to_owned(), value))
            .into(),
            empty: "Neither capture has any live memory at this point.".to_owned(),
            held: found.held,
            before: Some(found.before),
            ..FlameGraph::default()
        };
        options.output.write(&b.chosen.path, "diff.html", flamegraph::page(&graph).as_bytes())?;
        return Ok(Exit::Ok);
    }
    let rows = found.rows(options.by);
    let mut out = io::stdout().lock();
    if options.json {
        out.write_all(&export::json(&rows)?)?;
        return Ok(Exit::Ok);
    }
    let (before, after) = (held_a.whole(), held_b.whole());
    let name = if query == HeapQuery::Peak { "peak" } else { "end" };
    let counts = before.counted().zip(after.counted());
    writeln!(
        out,
        "{name} {} → {}  ({}){}",
        format_bytes(before.bytes),
        format_bytes(after.bytes),
        signed(after.bytes as i64 - before.bytes as i64),
        counts.map_or_else(String::new, |(before, after)| format!(", {before} → {after} allocations")),
    )?;
    if rows.is_empty() {
        writeln!(out, "No difference.")?;
    }
    let mut table = Table::new(&[], &[0, 1]);
    for row in rows.iter().take(options.top) {
        let (nobody, place) = named(row.stack.first());
        // The callers tell stacks apart that end in the same line.
        let shown = row.stack.iter().take(CALLERS).map(|place| named(Some(place)).0);
        let function = shown.collect::<Vec<_>>().join(" ← ");
        let function = if row.stack.is_empty() { nobody } else { function };
        let count = row.delta_count.map_or_else(|| "-".to_owned(), |delta| format!("{delta:+}"));
        table.row([signed(row.delta_bytes), count, place, function, state(row).to_owned()]);
    }
    for line in table.lines().into_iter().skip(1) {
        writeln!(out, "  {line}")?;
    }
    if rows.len() > options.top {
        writeln!(out, "  … {} smaller differences; -n {} prints all", rows.len() - options.top, rows.len())?;
    }
    Ok(Exit::Ok)
}

fn state(row: &DiffRow) -> &'static str {
    match (row.before_bytes, row.own_bytes) {
        (0, _) => "new",
        (_, 0) => "gone",
        _ => "",
    }
}

fn signed(bytes: i64) -> String {
    let sign = if bytes < 0 { "−" } else { "+" };
    format!("{sign}{}", format_bytes(bytes.unsigned_abs()))
}
