//! The live view: what is shown of the last reading, in which order, and what is asked of the next.

use stormlog_model::stacks::Frame;

use crate::state::entry::Entry;
use crate::state::key::{Flow, Key};
use crate::state::list::Cursor;
use crate::state::reading::{Heap, Line, MemoryRow, ProcessRow, Reading, Thread, Wish};

/// The column the lines are ordered by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Order {
    Total,
    Own,
    Count,
}

/// What the screen shows.
#[derive(Debug)]
pub struct LiveState {
    pub(crate) reading: Reading,
    /// Came while paused.
    waiting: Option<Reading>,
    pub(crate) is_paused: bool,
    pub(crate) order: Order,
    pub(crate) filter: Entry,
    pub(crate) cursor: Cursor,
    /// The line the user moved to: the cursor follows it, and else stays on top.
    anchor: Option<Frame>,
    /// Indices of the lines that pass the filter, in order.
    pub(crate) rows: Vec<usize>,
    /// The list of processes is open, with its own cursor.
    pub(crate) processes: Option<Cursor>,
    wish: Wish,
    pub(crate) shows_source: bool,
    pub(crate) shows_help: bool,
}

impl LiveState {
    /// The first look.
    #[must_use]
    pub fn new(reading: Reading) -> Self {
        LiveState::of(reading, Wish::default())
    }

    /// The first look, with something asked already.
    #[must_use]
    pub fn of(reading: Reading, wish: Wish) -> Self {
        let mut state = LiveState {
            reading,
            waiting: None,
            is_paused: false,
            order: Order::Own,
            filter: Entry::default(),
            cursor: Cursor::default(),
            anchor: None,
            rows: Vec::new(),
            processes: None,
            wish,
            shows_source: false,
            shows_help: false,
        };
        state.arrange();
        state
    }

    /// Whether a look answers what is asked: what was asked for before the last change of mind is of no use.
    pub(crate) fn is_answer(&self, reading: &Reading) -> bool {
        let is_asked = |heap: &Heap| {
            heap.thread == self.wish.thread
                && heap.at_ns == self.wish.at_ns
                && self.wish.memory.is_none_or(|memory| {
                    // A memory that is not there (yet) is answered with another one.
                    memory == heap.memory || !heap.memories.iter().any(|row| row.memory == memory)
                })
        };
        reading.chosen.as_ref().is_none_or(|process| {
            self.wish.pid.is_none_or(|pid| pid == process.pid) && process.heap.as_ref().is_none_or(is_asked)
        })
    }

    /// Takes a new look in; true when it is shown at once.
    pub fn update(&mut self, reading: Reading) -> bool {
        if !self.is_answer(&reading) {
            return false;
        }
        if self.is_paused {
            self.waiting = Some(reading);
            return false;
        }
        self.reading = reading;
        self.arrange();
        true
    }

    /// What the next look should be about.
    #[must_use]
    pub fn wish(&self) -> Wish {
        self.wish
    }

    /// Asks for the heap of a moment (nanoseconds since 1970), or of now, with its stacks or without.
    pub(crate) fn ask(&mut self, at_ns: Option<u64>, has_stacks: bool) {
        (self.wish.at_ns, self.wish.has_stacks) = (at_ns, has_stacks);
    }

    /// Orders by the next column.
    pub(crate) fn step_order(&mut self) {
        self.sort(match self.order {
            Order::Own => Order::Total,
            Order::Total => Order::Count,
            Order::Count => Order::Own,
        });
    }

    /// Takes a key.
    pub fn key(&mut self, key: Key) -> Flow {
        if self.shows_help {
            self.shows_help = false;
            return Flow::Stay;
        }
        if self.filter.is_open {
            self.filter.key(key);
            self.arrange();
            return Flow::Stay;
        }
        if let Some(cursor) = &mut self.processes {
            match key {
                Key::Letter('q') => return Flow::Leave,
                Key::Enter => {
                    let pid = self.reading.processes.get(cursor.at).map(|process| process.pid);
                    self.processes = None;
                    self.choose_process(pid);
                }
                Key::Escape | Key::Letter('p') => self.processes = None,
                _ => {
                    cursor.key(key, self.reading.processes.len());
                }
            }
            return Flow::Stay;
        }
        if self.cursor.key(key, self.rows.len()) {
            self.anchor = self.chosen().filter(|_| self.cursor.at > 0).cloned();
            return Flow::Stay;
        }
        match key {
            Key::Letter('q') => return Flow::Leave,
            Key::Escape if self.shows_source => self.shows_source = false,
            Key::Escape if !self.filter.text.is_empty() => {
                self.filter = Entry::default();
                self.arrange();
            }
            Key::Escape => return Flow::Leave,
            Key::Letter('t') => self.sort(Order::Total),
            Key::Letter('o') => self.sort(Order::Own),
            Key::Letter('a') => self.sort(Order::Count),
            Key::Letter('/') => {
                self.filter.open();
                self.arrange();
            }
            Key::Letter(' ') => self.pause(),
            Key::Letter('<' | ',') | Key::Left => self.step_thread(false),
            Key::Letter('>' | '.') | Key::Right => self.step_thread(true),
            Key::Letter('p') => self.open_processes(),
            Key::Letter('m') => self.step_memory(),
            Key::Tab => self.step_process(true),
            Key::BackTab => self.step_process(false),
            Key::Enter | Key::Letter('s') => self.shows_source = !self.shows_source,
            Key::Letter('?') => self.shows_help = true,
            _ => {}
        }
        Flow::Stay
    }

    /// The line under the cursor.
    pub(crate) fn chosen(&self) -> Option<&Frame> {
        self.rows.get(self.cursor.at).and_then(|index| self.lines().get(*index)).map(|line| &line.frame)
    }

    pub(crate) fn lines(&self) -> &[Line] {
        let heap = self.reading.chosen.as_ref().and_then(|process| process.heap.as_ref());
        heap.map_or(&[], |heap| &heap.lines)
    }

    pub(crate) fn threads(&self) -> &[Thread] {
        let heap = self.reading.chosen.as_ref().and_then(|process| process.heap.as_ref());
        heap.map_or(&[], |heap| &heap.threads)
    }

    /// The place of the chosen thread among all, from 1, and the thread.
    pub(crate) fn thread(&self) -> Option<(usize, &Thread)> {
        let wanted = self.wish.thread?;
        let mut threads = self.threads().iter().enumerate();
        threads.find(|(_, thread)| thread.id == wanted).map(|(at, thread)| (at + 1, thread))
    }

    fn pause(&mut self) {
        self.is_paused = !self.is_paused;
        if let (false, Some(reading)) = (self.is_paused, self.waiting.take()) {
            self.reading = reading;
            self.arrange();
        }
    }

    pub(crate) fn sort(&mut self, order: Order) {
        self.order = order;
        (self.cursor, self.anchor) = (Cursor::default(), None);
        self.arrange();
    }

    /// The memories that are recorded of the process.
    pub(crate) fn memories(&self) -> &[MemoryRow] {
        let heap = self.reading.chosen.as_ref().and_then(|process| process.heap.as_ref());
        heap.map_or(&[], |heap| &heap.memories)
    }

    /// The next memory: the host's, then each device's.
    fn step_memory(&mut self) {
        let rows = self.memories();
        if rows.len() < 2 {
            return;
        }
        let shown = self.reading.chosen.as_ref().and_then(|process| process.heap.as_ref());
        let now = self.wish.memory.or(shown.map(|heap| heap.memory));
        let at = rows.iter().position(|row| Some(row.memory) == now).map_or(0, |at| (at + 1) % rows.len());
        self.wish.memory = rows.get(at).map(|row| row.memory);
        self.wish.thread = None;
        (self.cursor, self.anchor) = (Cursor::default(), None);
    }

    /// The next thread, with "all" between the last and the first.
    fn step_thread(&mut self, is_forward: bool) {
        let ids: Vec<Option<u64>> =
            std::iter::once(None).chain(self.threads().iter().map(|thread| Some(thread.id))).collect();
        let at = ids.iter().position(|id| *id == self.wish.thread).unwrap_or(0);
        let step = if is_forward { 1 } else { ids.len() - 1 };
        self.wish.thread = ids[(at + step) % ids.len()];
        (self.cursor, self.anchor) = (Cursor::default(), None);
    }

    fn open_processes(&mut self) {
        let at = self.process_at();
        self.processes = Some(Cursor::on(at));
    }

    fn step_process(&mut self, is_forward: bool) {
        let count = self.reading.processes.len();
        if count > 1 {
            let step = if is_forward { 1 } else { count - 1 };
            let next = (self.process_at() + step) % count;
            self.choose_process(self.reading.processes.get(next).map(|process| process.pid));
        }
    }

    pub(crate) fn process_at(&self) -> usize {
        let pid = self.wish.pid.or(self.reading.chosen.as_ref().map(|process| process.pid));
        let is_it = |process: &ProcessRow| Some(process.pid) == pid;
        self.reading.processes.iter().position(is_it).unwrap_or(0)
    }

    fn choose_process(&mut self, pid: Option<u32>) {
        if pid != self.wish.pid {
            self.wish = Wish { pid, thread: None, memory: None, at_ns: None, ..self.wish };
            (self.cursor, self.anchor) = (Cursor::default(), None);
        }
    }

    /// Filters and orders the lines again.
    fn arrange(&mut self) {
        let lines = match &self.reading.chosen {
            Some(process) => process.heap.as_ref().map_or(&[][..], |heap| &heap.lines),
            None => &[],
        };
        let passes = |line: &Line| {
            self.filter.text.is_empty()
                || self.filter.matches(&line.frame.function)
                || self.filter.matches(&line.frame.file)
        };
        let mut rows: Vec<usize> = (0..lines.len()).filter(|index| passes(&lines[*index])).collect();
        let key = |index: &usize| {
            let line = &lines[*index];
            match self.order {
                Order::Total => (line.total_bytes, line.own_bytes),
                Order::Own => (line.own_bytes, line.total_bytes),
                Order::Count => (line.count, line.total_bytes),
            }
        };
        rows.sort_by_key(|index| (std::cmp::Reverse(key(index)), *index));
        let is_anchor = |index: &usize| Some(&lines[*index].frame) == self.anchor.as_ref();
        if let Some(at) = rows.iter().position(is_anchor) {
            self.cursor.at = at;
        }
        self.rows = rows;
        self.cursor.at = self.cursor.at.min(self.rows.len().saturating_sub(1));
    }
}

#[cfg(test)]
mod tests;
