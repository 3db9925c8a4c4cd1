//! One look without a terminal: the same picture as plain text, or its values as JSON.

use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::buffer::Buffer;
use serde_json::{Value, json};

use crate::error::TuiError;
use crate::state::live::LiveState;
use crate::state::reading::{Line, Process, Reading};
use crate::view;
use crate::view::theme::Theme;

/// The live view as plain text of this many columns and at most this many lines.
pub fn frame(reading: Reading, columns: u16, lines: u16) -> Result<String, TuiError> {
    let mut state = LiveState::new(reading);
    // A picture in memory cannot fail to be drawn.
    let terminal = Terminal::new(TestBackend::new(columns.max(20), lines.max(5)));
    let Ok(mut terminal) = terminal;
    let Ok(_) = terminal.draw(|frame| view::live::draw(frame, &mut state, None, &Theme::PLAIN, false));
    Ok(text_of(terminal.backend().buffer()))
}

/// The letters of a picture, without the spaces behind them.
pub(crate) fn text_of(buffer: &Buffer) -> String {
    let mut text = String::new();
    for line in buffer.content.chunks(usize::from(buffer.area.width)) {
        let mut skip = 0;
        let mut row = String::new();
        for cell in line {
            if skip == 0 {
                row.push_str(cell.symbol());
                skip = crate::text::width(cell.symbol()).max(1);
            }
            skip -= 1;
        }
        text.push_str(row.trim_end());
        text.push('\n');
    }
    text.truncate(text.trim_end().len());
    text.push('\n');
    text
}

/// What a look says, for scripts.
#[must_use]
pub fn to_json(reading: &Reading) -> Value {
    json!({
        "title": reading.title,
        "at_ns": reading.at_ns,
        "processes": reading.processes,
        "output": reading.output,
        "process": reading.chosen.as_ref().map(process_json),
    })
}

fn process_json(process: &Process) -> Value {
    let notes: Vec<Value> = process
        .notes
        .iter()
        .map(|note| json!({"at_ns": note.at_ns, "level": note.level, "text": note.text}))
        .collect();
    let heap = process.heap.as_ref().map(|heap| {
        json!({
            "memory": heap.memory,
            "memories": heap.memories,
            "reserved_bytes": heap.reserved,
            "bytes": heap.bytes,
            "count": heap.count,
            "peak_bytes": heap.peak,
            "is_sampled": heap.is_sampled,
            "behind_seconds": heap.behind_seconds,
            "threads": heap.threads,
            "lines": heap.lines.iter().map(line_json).collect::<Vec<Value>>(),
        })
    });
    json!({
        "pid": process.pid,
        "ended": process.ended,
        "seconds": process.seconds,
        "rss_bytes": process.rss.points().last().map(|(_, bytes)| bytes),
        "rss_peak_bytes": process.rss_peak,
        "phase": process.phase,
        "notes": notes,
        "heap": heap,
        "trouble": process.trouble,
    })
}

fn line_json(line: &Line) -> Value {
    json!({
        "function": line.frame.function,
        "file": line.frame.file,
        "line": line.frame.line,
        "own_bytes": line.own_bytes,
        "total_bytes": line.total_bytes,
        "count": line.count,
    })
}
