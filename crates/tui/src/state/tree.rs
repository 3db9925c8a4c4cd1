//! The call tree on screen: which rows are open, which is chosen, what is hidden and searched for.

use rustc_hash::FxHashSet;
use stormlog_model::stacks::{Frame, StackProfile};

use crate::state::entry::{Entry, Typed};
use crate::state::key::{Flow, Key};
use crate::state::list::Cursor;

pub(in crate::state) mod shape;

pub(crate) use shape::Hidden;
use shape::{ROOT, Shape};

/// Open rows that are found again when the stacks change.
const MOST_KEPT: usize = 500;
/// Most rows that "open everything" opens.
const MOST_ROWS: usize = 5000;

/// One row of the screen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Row {
    node: u32,
    /// Branches above it: a chain of only children is not indented.
    pub(crate) depth: usize,
    /// The only child of the row above.
    pub(crate) is_only_child: bool,
}

/// What a row says.
#[derive(Debug, PartialEq)]
pub(crate) struct Cells<'a> {
    /// `None` for the first row, which is everything together.
    pub(crate) frame: Option<&'a Frame>,
    pub(crate) bytes: u64,
    pub(crate) own: u64,
    pub(crate) count: u64,
    /// Share of everything, 0 to 1.
    pub(crate) share: f64,
    pub(crate) is_leaf: bool,
    pub(crate) is_open: bool,
    pub(crate) is_match: bool,
}

/// A call tree being looked at.
#[derive(Debug)]
pub struct TreeState {
    held: StackProfile,
    pub(crate) title: String,
    /// Sentences that must be seen.
    pub(crate) notes: String,
    shape: Shape,
    pub(crate) hidden: Hidden,
    pub(crate) by_count: bool,
    open: FxHashSet<u32>,
    pub(crate) rows: Vec<Row>,
    pub(crate) cursor: Cursor,
    pub(crate) search: Entry,
    /// A word about the last key, until the next.
    pub(crate) notice: Option<String>,
    pub(crate) shows_source: bool,
    pub(crate) shows_help: bool,
}

impl TreeState {
    /// A tree with its largest branch open. The first line of `title` says what it is; those after it are sentences that must be seen.
    #[must_use]
    pub fn new(held: StackProfile, title: &str) -> Self {
        let (title, notes) = title.split_once('\n').unwrap_or((title, ""));
        let notes: Vec<_> = notes.lines().map(|note| crate::text::clean(note.trim())).collect();
        let shape = Shape::new(&held, Hidden::Nothing, false);
        let mut state = TreeState {
            held,
            title: crate::text::clean(title).into_owned(),
            notes: notes.join(" "),
            shape,
            hidden: Hidden::Nothing,
            by_count: false,
            open: FxHashSet::default(),
            rows: Vec::new(),
            cursor: Cursor::default(),
            search: Entry::default(),
            notice: None,
            shows_source: false,
            shows_help: false,
        };
        state.open_heavy();
        state.lay_out();
        state
    }

    /// The same view of other stacks of the same program: what is open stays open, as far as it is there.
    pub(crate) fn renew(&mut self, held: StackProfile) {
        let open: Vec<Vec<Frame>> =
            self.open.iter().take(MOST_KEPT).map(|node| self.shape.frames_to(&self.held, *node)).collect();
        let chosen = self.shape.frames_to(&self.held, self.at());
        self.shape = Shape::new(&held, self.hidden, self.by_count);
        self.held = held;
        self.open.clear();
        self.open.insert(ROOT);
        for way in open {
            self.open.extend(self.shape.find(&self.held, &way));
        }
        let node = self.shape.find(&self.held, &chosen).unwrap_or(ROOT);
        self.reveal(node);
    }

    /// Whether there is nothing to show.
    pub(crate) fn is_empty(&self) -> bool {
        self.shape.children(ROOT).is_empty()
    }

    /// Takes a key.
    pub fn key(&mut self, key: Key) -> Flow {
        self.notice = None;
        if self.shows_help {
            self.shows_help = false;
            return Flow::Stay;
        }
        if self.search.is_open {
            if self.search.key(key) == Typed::Accepted {
                self.find(true, true);
            }
            return Flow::Stay;
        }
        if self.cursor.key(key, self.rows.len()) {
            return Flow::Stay;
        }
        match key {
            Key::Letter('q') => return Flow::Leave,
            Key::Escape if self.shows_source => self.shows_source = false,
            Key::Escape if !self.search.text.is_empty() => self.search = Entry::default(),
            Key::Escape => return Flow::Leave,
            Key::Right | Key::Letter('l') => self.go_in(),
            Key::Left => self.go_out(),
            Key::Enter | Key::Letter(' ') => self.toggle(),
            Key::Letter('e') => self.open_below(),
            Key::Letter('c') => self.close_all(),
            Key::Letter('h') => self.hide(self.hidden.next()),
            Key::Letter('o') => {
                self.by_count = !self.by_count;
                self.hide(self.hidden);
            }
            Key::Letter('s') => self.shows_source = !self.shows_source,
            Key::Letter('/') => self.search.open(),
            Key::Letter('n') => self.find(true, false),
            Key::Letter('N') => self.find(false, false),
            Key::Letter('?') => self.shows_help = true,
            _ => {}
        }
        Flow::Stay
    }

    /// The frame of the chosen row.
    pub(crate) fn chosen(&self) -> Option<&Frame> {
        self.rows.get(self.cursor.at).and_then(|row| self.frame(row.node))
    }

    pub(crate) fn cells(&self, row: Row) -> Cells<'_> {
        let (total, own) = self.shape.weight(row.node);
        let (whole, _) = self.shape.weight(ROOT);
        let (part, all) = if self.by_count { (total.count, whole.count) } else { (total.bytes, whole.bytes) };
        let frame = self.frame(row.node);
        Cells {
            frame,
            bytes: total.bytes,
            own: own.bytes,
            count: total.count,
            share: if all == 0 { 0.0 } else { part as f64 / all as f64 },
            is_leaf: self.shape.children(row.node).is_empty(),
            is_open: self.open.contains(&row.node),
            is_match: !self.search.text.is_empty() && frame.is_some_and(|frame| self.is_found(frame)),
        }
    }

    fn frame(&self, node: u32) -> Option<&Frame> {
        self.shape.frame(node).and_then(|frame| self.held.tree.frames.get(frame as usize))
    }

    fn is_found(&self, frame: &Frame) -> bool {
        self.search.matches(&frame.function) || self.search.matches(&frame.file)
    }

    fn at(&self) -> u32 {
        self.rows.get(self.cursor.at).map_or(ROOT, |row| row.node)
    }

    /// Opens a node, and on below it as long as there is only one way.
    fn open_chain(&mut self, node: u32) {
        let mut at = node;
        loop {
            self.open.insert(at);
            match *self.shape.children(at) {
                [only] => at = only,
                _ => break,
            }
        }
    }

    /// Opens the path from the root to where most of the memory splits up: what a user would open first.
    fn open_heavy(&mut self) {
        let (whole, _) = self.shape.weight(ROOT);
        let mut at = ROOT;
        loop {
            self.open.insert(at);
            let Some(&largest) = self.shape.children(at).first() else { break };
            let (total, _) = self.shape.weight(largest);
            let (part, all) =
                if self.by_count { (total.count, whole.count) } else { (total.bytes, whole.bytes) };
            if part < all.div_ceil(2) {
                break;
            }
            at = largest;
        }
    }

    fn toggle(&mut self) {
        let node = self.at();
        if !self.open.remove(&node) {
            self.open_chain(node);
        }
        self.lay_out();
    }

    fn go_in(&mut self) {
        let node = self.at();
        if self.shape.children(node).is_empty() {
            return;
        }
        if self.open.contains(&node) {
            self.cursor.at += 1;
        } else {
            self.open_chain(node);
            self.lay_out();
        }
    }

    fn go_out(&mut self) {
        let node = self.at();
        if self.open.contains(&node) && !self.shape.children(node).is_empty() {
            self.open.remove(&node);
            self.lay_out();
        } else {
            self.choose(self.shape.parent(node));
        }
    }

    fn open_below(&mut self) {
        let mut pending = vec![self.at()];
        let mut opened = 0;
        while let Some(node) = pending.pop() {
            let children = self.shape.children(node);
            opened += children.len();
            if opened > MOST_ROWS {
                self.notice = Some(format!("only {MOST_ROWS} rows were opened"));
                break;
            }
            self.open.insert(node);
            pending.extend(children);
        }
        self.lay_out();
    }

    fn close_all(&mut self) {
        self.open.clear();
        self.open.insert(ROOT);
        self.lay_out();
        self.cursor.at = 0;
    }

    /// Hides other frames or reorders; the chosen row stays chosen as far as it is still there.
    fn hide(&mut self, hidden: Hidden) {
        let way = self.shape.way_to(self.at());
        self.hidden = hidden;
        self.shape = Shape::new(&self.held, hidden, self.by_count);
        self.open.clear();
        self.open_heavy();
        let node = self.shape.follow(&way);
        self.reveal(node);
    }

    /// Goes to the next row that matches, in the order of a tree that is wholly open.
    fn find(&mut self, is_forward: bool, from_here: bool) {
        if self.search.text.is_empty() {
            return;
        }
        let order = self.shape.in_order();
        let here = order.iter().position(|node| *node == self.at()).unwrap_or(0);
        let is_match = |at: &usize| self.frame(order[*at]).is_some_and(|frame| self.is_found(frame));
        let count = order.len();
        let first = usize::from(!from_here);
        let found = if is_forward {
            (first..=count).map(|step| (here + step) % count).find(is_match)
        } else {
            (first..=count).map(|step| (here + count - step % count) % count).find(is_match)
        };
        match found {
            Some(at) => self.reveal(order[at]),
            None => self.notice = Some(format!("nothing matches “{}”", self.search.text)),
        }
    }

    fn reveal(&mut self, node: u32) {
        let mut above = node;
        while above != ROOT {
            above = self.shape.parent(above);
            self.open.insert(above);
        }
        self.lay_out();
        self.choose(node);
    }

    fn choose(&mut self, node: u32) {
        if let Some(at) = self.rows.iter().position(|row| row.node == node) {
            self.cursor.at = at;
        }
    }

    fn lay_out(&mut self) {
        self.rows.clear();
        let mut pending = vec![Row { node: ROOT, depth: 0, is_only_child: false }];
        while let Some(row) = pending.pop() {
            self.rows.push(row);
            if self.open.contains(&row.node) {
                let children = self.shape.children(row.node);
                let is_only_child = children.len() == 1 && row.node != ROOT;
                let depth = if is_only_child { row.depth } else { row.depth + 1 };
                pending.extend(children.iter().rev().map(|node| Row { node: *node, depth, is_only_child }));
            }
        }
        self.cursor.at = self.cursor.at.min(self.rows.len() - 1);
    }
}

#[cfg(test)]
mod tests;
