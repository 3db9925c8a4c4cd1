//! CSV: one row a stack, with its weight and its frames.

use stormlog_model::stacks::StackProfile;
use stormlog_model::text::inert_cell;

use crate::{label, outermost_first};

/// Columns `thread,bytes,count,function,file,line,stack`; the stack is written the outermost first, `|` between its frames.
#[must_use]
pub fn csv(held: &StackProfile) -> Vec<u8> {
    let names: Vec<String> = held.tree.frames.iter().map(|frame| label(frame).replace('|', "/")).collect();
    let mut writer = csv::Writer::from_writer(Vec::new());
    // Writing into memory cannot fail.
    let _ = writer.write_record(["thread", "bytes", "count", "function", "file", "line", "stack"]);
    for row in &held.rows {
        let inner = held.tree.stack(row.node).next();
        let path: Vec<&str> =
            outermost_first(held, row.node).iter().map(|&frame| names[frame as usize].as_str()).collect();
        let thread = held.threads.get(row.thread as usize).map_or("", String::as_str);
        let _ = writer.write_record([
            inert_cell(thread).as_ref(),
            &row.bytes.to_string(),
            &row.count.to_string(),
            &inert_cell(inner.map_or("", |frame| &frame.function)),
            &inert_cell(inner.map_or("", |frame| &frame.file)),
            &inner.map_or(0, |frame| frame.line).to_string(),
            &inert_cell(&path.join("|")),
        ]);
    }
    writer.into_inner().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    #[test]
    fn hostile_names_stay_in_their_cell() {
        let text = super::csv(&crate::testing::held());
        let mut reader = csv::Reader::from_reader(&text[..]);
        let rows: Vec<csv::StringRecord> = reader.records().collect::<Result<_, _>>().unwrap();
        assert_eq!(rows.len(), 3);
        assert_eq!(&rows[2][3], "par\nse<\u{202e}");
        assert_eq!(&rows[2][1], "30");
    }
}
