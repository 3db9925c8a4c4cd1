//! One process over its whole life: lanes on one axis of time, a cursor in it, and what held the memory at the cursor.
//!
//! The table of lines, threads, memories and processes is that of the live view ([`LiveState`]); this adds the time.

use stormlog_model::stacks::Frame;
use stormlog_story::lanes::{LIMIT, ProcessLanes};
use stormlog_story::{Lane, Line, Mark};

use crate::state::axis::Axis;
use crate::state::entry::Entry;
use crate::state::flame::FlameState;
use crate::state::key::{Button, Flow, Key, Mouse};
use crate::state::live::LiveState;
use crate::state::reading::{Heap, Process, Reading, Wish};
use crate::state::tree::TreeState;

/// Nanoseconds in a millisecond of the axis.
const MS: u64 = 1_000_000;
/// Rows that the wheel moves in the table.
const WHEEL: usize = 3;

/// What is below the lanes.
#[derive(Debug)]
pub(crate) enum Pane {
    Lines,
    /// `None` until its stacks were read.
    Tree(Option<Box<TreeState>>),
    Flame(Option<Box<FlameState>>),
}

/// Where the lanes were drawn last: what a click means.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct PlotArea {
    pub(crate) column: u16,
    pub(crate) width: u16,
    pub(crate) top: u16,
    /// The row below the last.
    pub(crate) bottom: u16,
    /// The row of the column heads, and the columns that end each of them.
    pub(crate) head: Option<u16>,
}

/// One process.
#[derive(Debug)]
pub(crate) struct ProcessState {
    pub(crate) live: LiveState,
    pub(crate) axis: Axis,
    pub(crate) pane: Pane,
    pub(crate) plot: PlotArea,
    /// What happened, once that was read; of a process that has ended.
    pub(crate) answer: Vec<String>,
    /// Why nothing can be shown.
    pub(crate) trouble: Option<String>,
    /// The frames of the flame graph as drawn last: row, columns, node.
    pub(crate) cells: Vec<(u16, u16, u16, u32)>,
    /// What the look that is shown was requested.
    shown: Option<Wish>,
    /// The moment that another view asked for, until the axis is known.
    wanted: Option<u64>,
}

impl ProcessState {
    /// Nothing is read yet of what is called this.
    pub(crate) fn new(title: String, pid: Option<u32>) -> Self {
        let wish = Wish { pid, has_lanes: true, ..Wish::default() };
        ProcessState {
            live: LiveState::of(Reading { title, ..Reading::default() }, wish),
            axis: Axis::default(),
            pane: Pane::Lines,
            plot: PlotArea::default(),
            answer: Vec::new(),
            trouble: None,
            cells: Vec::new(),
            shown: None,
            wanted: None,
        }
    }

    /// Looks at this moment, nanoseconds since 1970, at once or when its time is read.
    pub(crate) fn show_moment(&mut self, at_ns: Option<u64>) {
        self.wanted = at_ns.map(|at| at / MS);
        self.measure();
    }

    pub(crate) fn wish(&self) -> Wish {
        self.live.wish()
    }

    pub(crate) fn process(&self) -> Option<&Process> {
        self.live.reading.chosen.as_ref()
    }

    pub(crate) fn heap(&self) -> Option<&Heap> {
        self.process().and_then(|process| process.heap.as_ref())
    }

    pub(crate) fn lanes(&self) -> Option<&ProcessLanes> {
        self.process().and_then(|process| process.lanes.as_ref())
    }

    /// Takes a look in; true when something changed. While paused only the answer to another question is taken, and the axis stays.
    pub(crate) fn update(&mut self, mut reading: Reading, is_paused: bool) -> bool {
        let wish = self.wish();
        if !self.live.is_answer(&reading) || (is_paused && self.shown == Some(wish)) {
            return false;
        }
        let is_same = |old: &&Process| reading.chosen.as_ref().is_some_and(|new| new.pid == old.pid);
        let old = self.process().filter(is_same).and_then(|old| old.lanes.clone());
        let is_same = old.is_some();
        if !is_same {
            (self.axis, self.answer) = (Axis::default(), Vec::new());
        }
        if let (true, Some(old), Some(new)) = (is_paused, old, &mut reading.chosen) {
            new.lanes = Some(old);
        }
        let heap = reading.chosen.as_mut().and_then(|process| process.heap.as_mut());
        let stacks = heap.and_then(|heap| heap.stacks.take());
        self.trouble = None;
        self.shown = Some(wish);
        self.live.update(reading);
        if !is_paused || !is_same {
            self.measure();
        }
        if let Some(held) = stacks {
            match &mut self.pane {
                Pane::Lines => {}
                Pane::Tree(Some(tree)) => tree.renew(held),
                Pane::Tree(none) => *none = Some(Box::new(TreeState::new(held, ""))),
                Pane::Flame(Some(flame)) => flame.renew(held),
                Pane::Flame(none) => *none = Some(Box::new(FlameState::new(held))),
            }
        }
        true
    }

    /// The axis reaches from the first point to the last, and to now while the process lives.
    fn measure(&mut self) {
        let Some(process) = self.process() else { return };
        let Some(lanes) = &process.lanes else { return };
        let lines = || lanes.lanes.iter().flat_map(|lane| &lane.lines);
        let first = lines().filter_map(|line| line.time.first()).min().copied();
        let last = lines().filter_map(|line| line.time.last()).max().copied();
        let last = if process.ended.is_none() { last.max(Some(self.live.reading.at_ns / MS)) } else { last };
        if let Some((first, last)) = first.zip(last) {
            self.axis.set_whole(first, last);
            if let Some(at) = self.wanted.take() {
                self.axis.go(at);
                self.ask_moment();
            }
        }
    }

    /// Whether anything was read of it yet.
    pub(crate) fn has_looked(&self) -> bool {
        self.shown.is_some()
    }

    /// Whether the shown figures are of what is requested.
    pub(crate) fn is_current(&self) -> bool {
        self.shown == Some(self.wish())
    }

    pub(crate) fn entry(&self) -> Option<&Entry> {
        match &self.pane {
            Pane::Tree(Some(tree)) if tree.search.is_open => Some(&tree.search),
            _ => Some(&self.live.filter),
        }
    }

    /// A list or a text takes all keys.
    pub(crate) fn takes_all_keys(&self) -> bool {
        self.live.processes.is_some() || self.entry().is_some_and(|entry| entry.is_open)
    }

    /// The frame under the cursor of the part below the lanes.
    pub(crate) fn chosen(&self) -> Option<&Frame> {
        match &self.pane {
            Pane::Lines => self.live.chosen(),
            Pane::Tree(tree) => tree.as_ref().and_then(|tree| tree.chosen()),
            Pane::Flame(flame) => flame.as_ref().and_then(|flame| flame.frame(flame.chosen())),
        }
    }

    /// The frame whose source is shown, if it is.
    pub(crate) fn source_of(&self) -> Option<&Frame> {
        let is_shown = match &self.pane {
            Pane::Lines => self.live.shows_source,
            Pane::Tree(tree) => tree.as_ref().is_some_and(|tree| tree.shows_source),
            Pane::Flame(_) => false,
        };
        self.chosen().filter(|_| is_shown)
    }

    /// Takes a key; false when there is no use for it.
    pub(crate) fn key(&mut self, key: Key) -> bool {
        let is_used = self.take(key);
        self.ask_moment();
        is_used
    }

    /// What held the memory at the cursor is requested.
    fn ask_moment(&mut self) {
        let has_stacks = !matches!(self.pane, Pane::Lines);
        self.live.ask(self.axis.cursor().map(|at| at.saturating_mul(MS)), has_stacks);
    }

    fn take(&mut self, key: Key) -> bool {
        if self.live.processes.is_some() || self.live.filter.is_open {
            self.live.key(key);
            return true;
        }
        if let Pane::Tree(Some(tree)) = &mut self.pane
            && tree.search.is_open
        {
            tree.key(key);
            return true;
        }
        let width = usize::from(self.plot.width);
        match key {
            Key::FarLeft | Key::Letter('H') => self.axis.stride(false, width),
            Key::FarRight | Key::Letter('L') => self.axis.stride(true, width),
            Key::Letter('[') => self.axis.zoom(false, self.axis.at()),
            Key::Letter(']') => self.axis.zoom(true, self.axis.at()),
            Key::Letter('0') => self.axis.show_whole(),
            Key::End => self.axis.follow(),
            Key::Home => self.axis.go(self.axis.whole().0),
            Key::Letter('T') => self.switch(matches!(self.pane, Pane::Tree(_)), Pane::Tree(None)),
            Key::Letter('f') => self.switch(matches!(self.pane, Pane::Flame(_)), Pane::Flame(None)),
            Key::Letter('m' | 'p' | '<' | '>' | ',' | '.') => {
                self.live.key(key);
            }
            _ => return self.take_in_pane(key),
        }
        true
    }

    fn take_in_pane(&mut self, key: Key) -> bool {
        let flow = match &mut self.pane {
            Pane::Tree(Some(tree)) => tree.key(key),
            Pane::Flame(Some(flame)) => flame.key(key),
            Pane::Tree(None) | Pane::Flame(None) if key == Key::Escape => Flow::Leave,
            Pane::Tree(None) | Pane::Flame(None) => Flow::Stay,
            Pane::Lines => return self.take_in_lines(key),
        };
        if flow == Flow::Leave {
            self.pane = Pane::Lines;
        }
        true
    }

    fn take_in_lines(&mut self, key: Key) -> bool {
        let width = usize::from(self.plot.width);
        match key {
            Key::Left | Key::Letter('h') => self.axis.step(-1, width),
            Key::Right | Key::Letter('l') => self.axis.step(1, width),
            Key::Letter('s') => self.live.step_order(),
            Key::Letter('n') => self.step_mark(true),
            Key::Letter('N') => self.step_mark(false),
            Key::Escape if self.live.shows_source || !self.live.filter.text.is_empty() => {
                self.live.key(key);
            }
            Key::Escape | Key::Tab | Key::BackTab => return false,
            Key::Letter(' ' | '?' | 'q') => return false,
            _ => {
                self.live.key(key);
            }
        }
        true
    }

    fn switch(&mut self, is_open: bool, pane: Pane) {
        self.pane = if is_open { Pane::Lines } else { pane };
        // Its stacks are to be read, even while paused.
        self.shown = None;
    }

    /// The next alert, forecast or death.
    fn step_mark(&mut self, is_forward: bool) {
        let at = self.axis.at();
        let marks = self.lanes().map(|lanes| lanes.marks.as_slice()).unwrap_or_default();
        let times = marks.iter().map(|mark| mark.at);
        let next = if is_forward {
            times.filter(|time| *time > at).min()
        } else {
            times.filter(|time| *time < at).max()
        };
        if let Some(time) = next {
            self.axis.go(time);
        }
    }

    /// Takes a click, a drag or the wheel.
    pub(crate) fn mouse(&mut self, mouse: Mouse) {
        let plot = self.plot;
        let is_lanes = (plot.top..plot.bottom).contains(&mouse.row);
        let column = usize::from(mouse.column.saturating_sub(plot.column));
        let time = self.axis.time_at(column, usize::from(plot.width));
        match mouse.button {
            Button::Press | Button::Drag if is_lanes && mouse.column >= plot.column => {
                // The last column is the end, which is followed.
                let is_last = column + 1 >= usize::from(plot.width);
                let is_end = is_last && self.axis.window().1 == self.axis.whole().1;
                self.axis.go(if is_end { u64::MAX } else { time });
            }
            Button::WheelUp if is_lanes => self.axis.zoom(true, time),
            Button::WheelDown if is_lanes => self.axis.zoom(false, time),
            Button::WheelUp => (0..WHEEL).for_each(|_| self.scroll(Key::Up)),
            Button::WheelDown => (0..WHEEL).for_each(|_| self.scroll(Key::Down)),
            Button::Press => self.press(mouse),
            _ => {}
        }
        self.ask_moment();
    }

    fn scroll(&mut self, key: Key) {
        match &mut self.pane {
            Pane::Tree(Some(tree)) => {
                tree.key(key);
            }
            Pane::Flame(_) | Pane::Tree(None) => {}
            Pane::Lines => {
                self.live.key(key);
            }
        }
    }

    /// On the heads of the columns: order by that one. On a frame of the flame graph: choose it.
    fn press(&mut self, mouse: Mouse) {
        use crate::state::live::Order;
        if let Pane::Flame(Some(flame)) = &mut self.pane {
            let hit = |(row, from, to, _): &&(u16, u16, u16, u32)| {
                *row == mouse.row && (*from..*to).contains(&mouse.column)
            };
            if let Some((.., node)) = self.cells.iter().find(hit) {
                let is_again = flame.chosen() == *node;
                flame.choose(*node);
                if is_again {
                    flame.key(Key::Enter);
                }
            }
        } else if self.plot.head == Some(mouse.row) {
            self.live.sort(match mouse.column {
                0..12 => Order::Own,
                12..24 => Order::Total,
                _ => Order::Count,
            });
        }
    }

    /// The counters to draw, those of the shown memory first: a lane and one of its lines.
    pub(crate) fn counters(&self) -> Vec<(&Lane, &Line)> {
        let Some(lanes) = self.lanes() else { return Vec::new() };
        let shown = self.heap().map(|heap| heap.memory.to_string());
        let mut all: Vec<(&Lane, &Line)> =
            lanes.lanes.iter().flat_map(|lane| lane.lines.iter().map(move |line| (lane, line))).collect();
        all.sort_by_key(|(lane, _)| {
            let is_shown = shown.as_deref().unwrap_or("host") == lane.memory;
            (!is_shown, lane.memory == LIMIT && shown.as_deref().is_some_and(|memory| memory != "host"))
        });
        all
    }

    /// The alert or forecast at the cursor, or the last one before it.
    pub(crate) fn mark(&self) -> Option<&Mark> {
        let at = self.axis.at();
        // A column covers a stretch of time: what was clicked on may be a little later.
        let (from, to) = self.axis.window();
        let slack = (to - from) / u64::from(self.plot.width.max(1));
        let marks = self.lanes().map(|lanes| lanes.marks.as_slice()).unwrap_or_default();
        marks.iter().rev().find(|mark| mark.at <= at.saturating_add(slack))
    }

    /// The phase at the cursor, and the step: its name, which it is, how many there are.
    pub(crate) fn phase(&self) -> Option<&str> {
        let at = self.axis.at();
        let stretches = self.lanes().map(|lanes| lanes.stretches.as_slice()).unwrap_or_default();
        let phase = stretches.iter().rfind(|one| !one.is_step && one.from <= at && at <= one.to);
        phase.map(|phase| phase.name.as_str())
    }

    pub(crate) fn step(&self) -> Option<(usize, usize)> {
        let at = self.axis.at();
        let stretches = self.lanes().map(|lanes| lanes.stretches.as_slice()).unwrap_or_default();
        let steps = || stretches.iter().filter(|one| one.is_step);
        let number = steps().filter(|step| step.from <= at).count();
        (number > 0).then(|| (number, steps().count()))
    }

    /// What is used of the nearest limit at the cursor, and when it is met by the forecast that held then.
    pub(crate) fn usage(&self) -> Option<String> {
        self.lanes()?.usage_at(self.axis.at())
    }
}

#[cfg(test)]
mod tests;
