//! The trace event format that Perfetto and `chrome://tracing` open: what was held as counters, blocks as
//! asynchronous spans (they overlap), the program's own spans.

use std::io::{self, Write};

use serde_json::json;

use super::{BlockLifetimes, frames, notes};
use crate::model::Totals;
use crate::recording::Recording;
use crate::trace::Action;

pub(super) fn write(recordings: &[Recording<'_>], out: &mut dyn Write) -> io::Result<()> {
    out.write_all(b"{\"displayTimeUnit\":\"ms\",\"traceEvents\":[")?;
    let mut trace = Trace { out, any: false };
    for recording in recordings {
        trace.device(recording)?;
    }
    trace.out.write_all(b"]}\n")
}

struct Trace<'w> {
    out: &'w mut dyn Write,
    any: bool,
}

impl Trace<'_> {
    fn event(&mut self, event: &serde_json::Value) -> io::Result<()> {
        self.out.write_all(if self.any { b",\n" } else { b"\n" })?;
        self.any = true;
        Ok(serde_json::to_writer(&mut *self.out, event)?)
    }

    fn device(&mut self, recording: &Recording<'_>) -> io::Result<()> {
        let device = recording.device;
        let name = json!({"ph": "M", "name": "process_name", "pid": device, "args": {"name": format!("device {device}")}});
        self.event(&name)?;
        self.counters(recording)?;
        let clock = Clock::of(recording);
        let stacks = recording.snapshot.tables.stack_count() as u32;
        let texts: Vec<String> =
            (0..stacks).map(|stack| frames(recording, stack).collect::<Vec<_>>().join("\n")).collect();
        for (number, row) in BlockLifetimes::of(recording).rows().enumerate() {
            let start = row.born_event.map_or(clock.start, |event| clock.at(event, row.born_us));
            let end = row.freed_event.map_or(clock.end, |event| clock.at(event, row.freed_us));
            let id = format!("{device}-{number}");
            let args = json!({
                "bytes": row.size, "asked_for": row.requested, "address": format!("{:#x}", row.addr),
                "freed": row.freed_event.is_some(), "stack": texts.get(row.stack as usize),
            });
            let begin = json!({"ph": "b", "cat": "block", "name": row.category, "id": id, "pid": device, "tid": 0, "ts": start, "args": args});
            self.event(&begin)?;
            let end = json!({"ph": "e", "cat": "block", "name": row.category, "id": id, "pid": device, "tid": 0, "ts": end});
            self.event(&end)?;
        }
        for span in notes::spans(recording.snapshot, device, usize::MAX) {
            let (start, length) = (span.start_us, span.end_us - span.start_us);
            let event = json!({"ph": "X", "cat": "annotation", "name": span.name, "pid": device, "tid": 1, "ts": start, "dur": length});
            self.event(&event)?;
        }
        Ok(())
    }

    fn counters(&mut self, recording: &Recording<'_>) -> io::Result<()> {
        let device = recording.device;
        let clock = Clock::of(recording);
        let counter = |time: i64, now: Totals| {
            json!({"ph": "C", "name": "memory", "pid": device, "ts": time, "args": {
                "allocated": now.allocated, "waiting": now.active - now.allocated, "free": now.reserved.saturating_sub(now.active),
            }})
        };
        self.event(&counter(clock.start, recording.tracker().totals()))?;
        for (index, (now, event)) in recording.totals().zip(recording.snapshot.trace(device)).enumerate() {
            let time = clock.at(index as u32, event.time_us);
            self.event(&counter(time, now))?;
            if event.action == Action::Oom {
                let failed = json!({"ph": "i", "s": "p", "name": "out of memory", "pid": device, "tid": 0, "ts": time, "args": {"asked_for": event.size}});
                self.event(&failed)?;
            }
        }
        Ok(())
    }
}

/// Times in microseconds; in a recording without times, an event is one.
struct Clock {
    timed: bool,
    start: i64,
    end: i64,
}

impl Clock {
    fn of(recording: &Recording<'_>) -> Self {
        let times = || recording.snapshot.trace(recording.device).filter_map(|event| event.time_us);
        let count = recording.snapshot.event_count(recording.device) as i64;
        match (times().min(), times().max()) {
            (Some(start), Some(end)) => Clock { timed: true, start, end },
            _ => Clock { timed: false, start: 0, end: count },
        }
    }

    fn at(&self, event: u32, time: Option<i64>) -> i64 {
        if self.timed { time.unwrap_or(self.start) } else { i64::from(event) }
    }
}
