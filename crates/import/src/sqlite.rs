//! A small reader of SQLite's file format: the schema, and the rows of ordinary tables in the order of their row numbers.
//!
//! Pages are read when they are needed; one row is held at a time. No index, no journal, no query. The file may be hostile: every offset is checked, a row has a
//! bound, and a walk reads no more pages, and of each no more bytes, than the file has: rows that share bytes could make a small file endless.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use crate::sqlite_record::{Encoding, Value, read_record, varint};
use crate::sqlite_schema::Table;

pub(crate) const MAGIC: &[u8; 16] = b"SQLite format 3\0";
const HEADER: usize = 100;
/// Bytes of one row.
const MOST_ROW: u64 = 64 << 20;
/// Levels of a tree: with two pages a level this is more than a file can have.
const MOST_DEPTH: usize = 40;
/// Tables of a schema.
const MOST_TABLES: usize = 10_000;
const SCHEMA_ROOT: u32 = 1;

/// Why a database cannot be read.
#[derive(Debug)]
pub(crate) enum SqliteError {
    Io(io::Error),
    /// What is wrong, at which byte.
    Damaged(&'static str, u64),
    /// Its newest content is in another file.
    Unfinished,
    /// It was recognised after decompression, and its pages are read where they are.
    Compressed,
}

impl From<io::Error> for SqliteError {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::UnexpectedEof => SqliteError::Damaged("it ends within a page", 0),
            _ => SqliteError::Io(error),
        }
    }
}

type Result<T> = std::result::Result<T, SqliteError>;

/// An open database.
pub(crate) struct Database {
    file: File,
    page_bytes: usize,
    /// Without what is reserved at the end of each page.
    usable: usize,
    pages: u64,
    encoding: Encoding,
    pub(crate) tables: Vec<Table>,
}

impl Database {
    /// Opens a file and reads its schema.
    pub(crate) fn open(path: &Path) -> Result<Self> {
        let file = stormlog_files::open_regular(path)?;
        let mut header = [0; HEADER];
        file.read_exact_at(&mut header, 0)?;
        if !header.starts_with(MAGIC) {
            return Err(SqliteError::Compressed);
        }
        let page_bytes = match u16::from_be_bytes([header[16], header[17]]) {
            1 => 65_536,
            bytes if bytes >= 512 && bytes.is_power_of_two() => usize::from(bytes),
            _ => return Err(SqliteError::Damaged("its page size is invalid", 16)),
        };
        let usable = page_bytes - usize::from(header[20]);
        if usable < 480 {
            return Err(SqliteError::Damaged("its pages have no usable space", 20));
        }
        let encoding = match u32::from_be_bytes([header[56], header[57], header[58], header[59]]) {
            0 | 1 => Encoding::Utf8,
            2 => Encoding::Utf16Little,
            3 => Encoding::Utf16Big,
            _ => return Err(SqliteError::Damaged("its text encoding is unknown", 56)),
        };
        let has = |ending: &str| {
            let mut other = path.as_os_str().to_owned();
            other.push(ending);
            std::fs::symlink_metadata(other).is_ok_and(|file| file.len() > 0)
        };
        if has("-wal") || has("-journal") {
            return Err(SqliteError::Unfinished);
        }
        let pages = file.metadata()?.len() / page_bytes as u64;
        let mut database = Database { file, page_bytes, usable, pages, encoding, tables: Vec::new() };
        database.tables = database.schema()?;
        Ok(database)
    }

    pub(crate) fn table(&self, name: &str) -> Option<&Table> {
        self.tables.iter().find(|table| table.name.eq_ignore_ascii_case(name))
    }

    fn schema(&self) -> Result<Vec<Table>> {
        let mut tables = Vec::new();
        // type, name, tbl_name, rootpage, sql.
        self.walk(SCHEMA_ROOT, &mut |_, payload| {
            let row = read_record(payload, self.encoding, &[0, 1, 3, 4]);
            if let Some([Value::Text(kind), Value::Text(name), Value::Int(root), Value::Text(sql)]) =
                row.as_deref()
                && kind == "table"
                && tables.len() < MOST_TABLES
            {
                tables.extend(u32::try_from(*root).ok().map(|root| Table::new(name, root, sql)));
            }
            true
        })?;
        Ok(tables)
    }

    /// Calls `visit` with the values of these columns for each row, until it is false. A column that the table does not have is null.
    pub(crate) fn rows(
        &self,
        table: &Table,
        columns: &[&str],
        visit: &mut dyn FnMut(&[Value]) -> bool,
    ) -> Result<()> {
        let places: Vec<usize> =
            columns.iter().map(|name| table.column(name).unwrap_or(usize::MAX)).collect();
        let row_number = table.row_number.and_then(|of| places.iter().position(|place| *place == of));
        let mut damaged = false;
        self.walk(table.root, &mut |row, payload| match read_record(payload, self.encoding, &places) {
            Some(mut values) => {
                // SQLite stores nothing for the column that is the row's own number.
                if let Some(value) = row_number.and_then(|at| values.get_mut(at)) {
                    *value = Value::Int(row);
                }
                visit(&values)
            }
            None => {
                damaged = true;
                false
            }
        })?;
        if damaged { Err(SqliteError::Damaged("a row cannot be read", 0)) } else { Ok(()) }
    }

    fn page(&self, number: u32, page: &mut [u8], visited: &mut u64) -> Result<()> {
        *visited += 1;
        // Each page is visited once in a walk: more visits than pages are a circle.
        if *visited > self.pages {
            return Err(SqliteError::Damaged("a list of pages has a cycle", self.offset(number)));
        }
        if number == 0 || u64::from(number) > self.pages {
            return Err(SqliteError::Damaged("a page number is beyond its end", self.offset(number)));
        }
        Ok(self.file.read_exact_at(page, self.offset(number))?)
    }

    fn offset(&self, number: u32) -> u64 {
        u64::from(number.saturating_sub(1)) * self.page_bytes as u64
    }

    /// The rows of a table's tree, in order.
    fn walk(&self, root: u32, visit: &mut dyn FnMut(i64, &[u8]) -> bool) -> Result<()> {
        let mut visited = 0;
        self.subtree(root, 0, &mut visited, visit).map(drop)
    }

    fn subtree(
        &self,
        number: u32,
        depth: usize,
        visited: &mut u64,
        visit: &mut dyn FnMut(i64, &[u8]) -> bool,
    ) -> Result<bool> {
        const LEAF: u8 = 0x0D;
        const INTERIOR: u8 = 0x05;
        let wrong = |what| SqliteError::Damaged(what, self.offset(number));
        if depth > MOST_DEPTH {
            return Err(wrong("a tree of pages has a cycle"));
        }
        let mut page = vec![0; self.page_bytes];
        self.page(number, &mut page, visited)?;
        let start = if number == 1 { HEADER } else { 0 };
        let kind = page[start];
        let cells = usize::from(u16::from_be_bytes([page[start + 3], page[start + 4]]));
        let pointers = start + if kind == INTERIOR { 12 } else { 8 };
        if kind != LEAF && kind != INTERIOR {
            return Err(wrong("a page is not of a table"));
        }
        if pointers + 2 * cells > self.usable {
            return Err(wrong("a page has more rows than fit"));
        }
        let mut room = self.usable;
        for cell in 0..cells {
            let at = pointers + 2 * cell;
            let at = usize::from(u16::from_be_bytes([page[at], page[at + 1]]));
            let content = page.get(at..self.usable).ok_or_else(|| wrong("a row is outside its page"))?;
            if kind == INTERIOR {
                let child = content.get(..4).ok_or_else(|| wrong("a row is outside its page"))?;
                let child = u32::from_be_bytes([child[0], child[1], child[2], child[3]]);
                if !self.subtree(child, depth + 1, visited, visit)? {
                    return Ok(false);
                }
            } else {
                let (length, after) = varint(content).ok_or_else(|| wrong("a row is truncated"))?;
                let (row, after) = varint(after).ok_or_else(|| wrong("a row is truncated"))?;
                let length = u64::try_from(length).map_err(|_| wrong("a row has no length"))?;
                if length > MOST_ROW {
                    return Err(wrong("a row has more than 64 MiB"));
                }
                let (payload, local) = self.payload(after, length, number, visited)?;
                room = room.checked_sub(local).ok_or_else(|| wrong("rows of a page share bytes"))?;
                if !visit(row, &payload) {
                    return Ok(false);
                }
            }
        }
        if kind == INTERIOR {
            let last = [page[start + 8], page[start + 9], page[start + 10], page[start + 11]];
            return self.subtree(u32::from_be_bytes(last), depth + 1, visited, visit);
        }
        Ok(true)
    }

    /// A row: the part in its page, with the length of that part, and the pages that follow it.
    fn payload(&self, local: &[u8], length: u64, number: u32, visited: &mut u64) -> Result<(Vec<u8>, usize)> {
        let wrong = |what| SqliteError::Damaged(what, self.offset(number));
        let length = usize::try_from(length).map_err(|_| wrong("a row is too long"))?;
        let most = self.usable - 35;
        if length <= most {
            let row = local.get(..length).ok_or_else(|| wrong("a row is truncated"))?;
            return Ok((row.to_vec(), length));
        }
        let least = (self.usable - 12) * 32 / 255 - 23;
        let kept = least + (length - least) % (self.usable - 4);
        let kept = if kept <= most { kept } else { least };
        let mut payload = local.get(..kept).ok_or_else(|| wrong("a row is truncated"))?.to_vec();
        let next = local.get(kept..kept + 4).ok_or_else(|| wrong("a row is truncated"))?;
        let mut next = u32::from_be_bytes([next[0], next[1], next[2], next[3]]);
        let mut page = vec![0; self.page_bytes];
        // Each page adds something, so that this ends.
        while payload.len() < length {
            self.page(next, &mut page, visited)?;
            let part = (length - payload.len()).min(self.usable - 4);
            payload.extend_from_slice(&page[4..4 + part]);
            next = u32::from_be_bytes([page[0], page[1], page[2], page[3]]);
        }
        Ok((payload, kept))
    }
}
