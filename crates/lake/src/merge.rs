//! Merging sorted files of one partition into one, row by row. Files are opened when their first row is due, so that of files whose ranks do not overlap
//! only a few are in memory, however many there are. Must never hold more than a bounded number of rows.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::path::PathBuf;
use std::rc::Rc;

use stormlog_files::Directory;
use stormlog_parquet::{ENGINE_GROUP_ROWS, GroupCell};
use stormlog_store::{TableColumn, TableFile};

use crate::LakeError;
use crate::layout::{PartFile, Partition};
use crate::marks;
use crate::part_writer::{PartWriter, SortKey, VERSION_KEY};
use crate::schema::{Kind, SCHEMA_VERSION, Table};

/// A merged file has at most about this size.
const LARGE: u64 = 512 << 20;
/// Rows of files that are in memory at once, one group of each: about 300 MB.
const MOST_ROWS: usize = 400_000;
/// Files that are in memory at once: each is an open file.
const MOST_OPEN: usize = 256;
/// Row groups that are held until their rows are written: one of a single row takes about 8 KB.
const MOST_GROUPS: usize = 8_192;
/// Rows have these in order; the job is that of the partition.
const KEY_COLUMNS: [&str; 3] = ["rank", "device", "ts"];

/// A file that is to be merged, with what decides which ones are merged together.
pub(crate) struct MergeInput {
    pub(crate) file: PartFile,
    /// Not after its first row, and not before its last one.
    first: SortKey,
    last: SortKey,
    group_rows: usize,
    /// The files of the partition that are in it: its own name, or those that it was made of.
    names: Vec<String>,
}

/// Why a file is not merged.
pub(crate) enum Unfit {
    /// Another program wrote it.
    Foreign,
    /// A later release wrote it: it may have columns that are not known here.
    Later(String),
    /// It cannot be read.
    Damaged(LakeError),
}

impl MergeInput {
    /// Looks at the footer of a file.
    pub(crate) fn of(file: PartFile) -> Result<Self, Box<(PartFile, Unfit)>> {
        let open = match TableFile::open(&file.path) {
            Ok(open) => open,
            Err(error) => return Err(Box::new((file, Unfit::Damaged(error.into())))),
        };
        match open.metadata(VERSION_KEY).map(|version| (version, version.parse::<u32>())) {
            None => return Err(Box::new((file, Unfit::Foreign))),
            Some((_, Ok(version))) if version <= SCHEMA_VERSION => {}
            Some((version, _)) => return Err(Box::new((file, Unfit::Later(version.to_owned())))),
        }
        let ranges = KEY_COLUMNS.map(|column| {
            let groups = (0..open.groups()).map(|group| open.range(group, column));
            // An unknown rank is before all others, and has no part in the range.
            groups.into_iter().try_fold((i64::MAX, i64::MIN), |all, range| {
                range.map(|range| (all.0.min(range.0), all.1.max(range.1)))
            })
        });
        let has_unknown = |column: &str| (0..open.groups()).any(|group| open.has_unknown(group, column));
        let lowest = |at: usize| ranges[at].map(|range| range.0).filter(|_| !has_unknown(KEY_COLUMNS[at]));
        let highest = |at: usize| ranges[at].map_or(Some(i64::MAX), |range| Some(range.1));
        let group_rows = (0..open.groups()).map(|group| open.group_rows(group)).max().unwrap_or(0);
        Ok(MergeInput {
            first: (lowest(0), lowest(1), lowest(2).unwrap_or(i64::MIN)),
            last: (highest(0), highest(1), highest(2).unwrap_or(i64::MAX)),
            group_rows,
            names: vec![file.name()],
            file,
        })
    }
}

/// Which files are merged together: neighbours in the order of their rows, as many as fit into one file and whose rows that are due at the same time fit
/// into memory.
pub(crate) fn buckets(mut inputs: Vec<MergeInput>) -> Vec<Vec<MergeInput>> {
    inputs.sort_by(|a, b| (a.first, &a.file.path).cmp(&(b.first, &b.file.path)));
    let mut all: Vec<Vec<MergeInput>> = Vec::new();
    let mut bytes = 0;
    let mut open: Vec<(SortKey, usize)> = Vec::new();
    for input in inputs {
        open.retain(|(last, _)| *last >= input.first);
        let rows: usize = open.iter().map(|(_, rows)| rows).sum();
        let is_full = rows + input.group_rows > MOST_ROWS
            || open.len() >= MOST_OPEN
            || bytes + input.file.bytes > LARGE;
        if is_full || all.is_empty() {
            (bytes, open) = (0, Vec::new());
            all.push(Vec::new());
        }
        bytes += input.file.bytes;
        open.push((input.last, input.group_rows));
        if let Some(last) = all.last_mut() {
            last.push(input);
        }
    }
    all
}

/// One row group of a file in memory.
struct Group {
    columns: Vec<TableColumn>,
    rows: usize,
}

/// A file that is read from its first row to its last.
struct Cursor {
    open: TableFile,
    next_group: usize,
    group: Rc<Group>,
    row: usize,
}

impl Cursor {
    fn new(open: TableFile) -> Self {
        let group = Rc::new(Group { columns: Vec::new(), rows: 0 });
        Cursor { open, next_group: 0, group, row: 0 }
    }

    /// Goes to the next row; false at the end. Counts the groups that it reads.
    fn advance(&mut self, names: &[&str], loaded: &mut usize) -> Result<bool, LakeError> {
        self.row += 1;
        while self.row >= self.group.rows {
            if self.next_group >= self.open.groups() {
                return Ok(false);
            }
            *loaded += 1;
            let columns = self.open.read_group(self.next_group, names)?;
            self.group = Rc::new(Group { columns, rows: self.open.group_rows(self.next_group) });
            (self.next_group, self.row) = (self.next_group + 1, 0);
        }
        Ok(true)
    }

    fn key(&self, places: [usize; 3]) -> SortKey {
        let integer = |at: usize| self.group.columns[at].integer(self.row);
        (integer(places[0]), integer(places[1]), integer(places[2]).unwrap_or(0))
    }
}

/// Merges files into one in the directory `scratch`. `states_replaced`: the new file lists those it replaces.
pub(crate) fn merge(
    table: Table,
    inputs: &[MergeInput],
    partition: &Partition,
    states_replaced: bool,
    scratch: &Directory,
) -> Result<MergeInput, LakeError> {
    let names: Vec<&str> = table.columns().iter().map(|column| column.name).collect();
    let places = KEY_COLUMNS.map(|name| table.column(name).unwrap_or(0));
    let mut writer = PartWriter::create_in(scratch, table, &stormlog_liveness::host_name())?;
    let mut gathered = marks::Merged::default();
    let mut cursors: Vec<Option<Cursor>> = Vec::new();
    let mut next = BinaryHeap::new();
    let mut waiting = inputs.iter().peekable();
    let kinds: Vec<Kind> = table.columns().iter().map(|column| column.kind).collect();
    let mut rows: Vec<(Rc<Group>, usize)> = Vec::new();
    let (mut group_rows, mut loaded) = (0, 0);
    let mut flush = |rows: &mut Vec<(Rc<Group>, usize)>, writer: &mut PartWriter| {
        group_rows = group_rows.max(rows.len());
        let written = writer.write_cells(rows.len(), |row, column| cell(&rows[row], column, kinds[column]));
        rows.clear();
        written
    };
    loop {
        // A file whose first row may come before the next one is opened.
        let due = next.peek().map(|Reverse((key, _))| *key);
        if let Some(input) = waiting.next_if(|input| due.is_none_or(|due| input.first <= due)) {
            let mut cursor = Cursor::new(TableFile::open(&input.file.path)?);
            gathered.add(cursor.open.metadata(marks::KEY).unwrap_or("[]"));
            if cursor.advance(&names, &mut loaded)? {
                next.push(Reverse((cursor.key(places), cursors.len())));
                cursors.push(Some(cursor));
            }
            continue;
        }
        let Some(Reverse((_, at))) = next.pop() else { break };
        let Some(cursor) = &mut cursors[at] else { break };
        rows.push((Rc::clone(&cursor.group), cursor.row));
        match cursor.advance(&names, &mut loaded)? {
            true => next.push(Reverse((cursor.key(places), at))),
            false => cursors[at] = None,
        }
        if rows.len() >= ENGINE_GROUP_ROWS || loaded >= MOST_GROUPS {
            loaded = 0;
            flush(&mut rows, &mut writer)?;
        }
    }
    flush(&mut rows, &mut writer)?;
    for mark in gathered.marks() {
        writer.marks.insert((mark.of.clone(), mark.setbacks), mark);
    }
    let replaced: Vec<String> = inputs.iter().flat_map(|input| input.names.iter().cloned()).collect();
    if states_replaced {
        writer.replaces(replaced.clone());
    }
    let (path, _, bytes): (PathBuf, u64, u64) = writer.finish()?;
    let first = inputs.iter().map(|input| input.first).min().unwrap_or((None, None, 0));
    let last = inputs.iter().map(|input| input.last).max().unwrap_or(first);
    let file = PartFile { partition: partition.clone(), path, bytes };
    Ok(MergeInput { file, first, last, group_rows, names: replaced })
}

fn cell<'a>((group, row): &'a (Rc<Group>, usize), column: usize, kind: Kind) -> GroupCell<'a> {
    let Some(cells) = group.columns.get(column) else { return GroupCell::Null };
    match kind {
        Kind::Integer | Kind::Time => cells.integer(*row).map_or(GroupCell::Null, GroupCell::Integer),
        Kind::Float => cells.float(*row).map_or(GroupCell::Null, GroupCell::Float),
        Kind::Boolean => cells.boolean(*row).map_or(GroupCell::Null, GroupCell::Boolean),
        Kind::Text => cells.text(*row).map_or(GroupCell::Null, GroupCell::Text),
    }
}
