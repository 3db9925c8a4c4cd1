//! A flame graph in cells: stacks from the outermost frame down, each as wide as its share, with one frame chosen and one at the top.

use stormlog_model::stacks::{Frame, StackProfile, Weight};

use crate::state::key::{Flow, Key};
use crate::state::tree::Hidden;
use crate::state::tree::shape::{ROOT, Shape};

/// Frames of one row that are laid out: more columns than any terminal has.
const MOST_CELLS: usize = 1000;

/// A flame graph being looked at.
#[derive(Debug)]
pub(crate) struct FlameState {
    held: StackProfile,
    shape: Shape,
    pub(crate) hidden: Hidden,
    /// The frame that is as wide as the screen.
    top: u32,
    chosen: u32,
}

/// One frame on the screen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Cell {
    pub(crate) node: u32,
    pub(crate) column: usize,
    pub(crate) width: usize,
}

impl FlameState {
    pub(crate) fn new(held: StackProfile) -> Self {
        let shape = Shape::new(&held, Hidden::Nothing, false);
        let chosen = shape.children(ROOT).first().copied().unwrap_or(ROOT);
        FlameState { held, shape, hidden: Hidden::Nothing, top: ROOT, chosen }
    }

    /// The same view of other stacks of the same program.
    pub(crate) fn renew(&mut self, held: StackProfile) {
        let way = |node| self.shape.frames_to(&self.held, node);
        let (top, chosen) = (way(self.top), way(self.chosen));
        self.shape = Shape::new(&held, self.hidden, false);
        self.held = held;
        self.top = self.shape.find(&self.held, &top).unwrap_or(ROOT);
        self.chosen = self.shape.find(&self.held, &chosen).unwrap_or(self.top);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.shape.children(ROOT).is_empty()
    }

    pub(crate) fn key(&mut self, key: Key) -> Flow {
        match key {
            Key::Escape if self.top != ROOT => self.top = ROOT,
            Key::Escape => return Flow::Leave,
            Key::Up | Key::Letter('k') => self.chosen = self.shape.parent(self.chosen),
            Key::Down | Key::Letter('j') => {
                self.chosen = self.shape.children(self.chosen).first().copied().unwrap_or(self.chosen);
            }
            Key::Left => self.beside(false),
            Key::Right | Key::Letter('l') => self.beside(true),
            Key::Letter('g') => self.chosen = self.top,
            Key::Enter if self.chosen == self.top => self.top = self.shape.parent(self.top),
            Key::Enter => self.top = self.chosen,
            Key::Backspace => self.top = self.shape.parent(self.top),
            Key::Letter('h') => {
                self.hidden = self.hidden.next();
                let held = std::mem::take(&mut self.held);
                self.shape = Shape::new(&held, self.hidden, false);
                self.held = held;
                self.top = ROOT;
                self.chosen = self.shape.children(ROOT).first().copied().unwrap_or(ROOT);
            }
            _ => {}
        }
        // What is chosen is on the screen.
        if !self.is_below_top(self.chosen) {
            self.top = self.chosen;
        }
        Flow::Stay
    }

    /// The frame of the same caller that is next to the chosen one.
    fn beside(&mut self, is_right: bool) {
        let all = self.shape.children(self.shape.parent(self.chosen));
        let Some(at) = all.iter().position(|node| *node == self.chosen) else { return };
        let next = if is_right { at + 1 } else { at.wrapping_sub(1) };
        if let Some(node) = all.get(next).filter(|_| self.chosen != self.top) {
            self.chosen = *node;
        }
    }

    fn is_below_top(&self, node: u32) -> bool {
        let mut at = node;
        while at != self.top && at != ROOT {
            at = self.shape.parent(at);
        }
        at == self.top
    }

    pub(crate) fn choose(&mut self, node: u32) {
        self.chosen = node;
    }

    pub(crate) fn chosen(&self) -> u32 {
        self.chosen
    }

    /// `None` for everything together.
    pub(crate) fn frame(&self, node: u32) -> Option<&Frame> {
        self.shape.frame(node).and_then(|frame| self.held.tree.frames.get(frame as usize))
    }

    pub(crate) fn weight(&self, node: u32) -> Weight {
        self.shape.weight(node).0
    }

    /// Share of everything, 0 to 1.
    pub(crate) fn share(&self, node: u32) -> f64 {
        let whole = self.weight(ROOT).bytes;
        if whole == 0 { 0.0 } else { self.weight(node).bytes as f64 / whole as f64 }
    }

    /// The frames of each row; those narrower than a column are left out.
    pub(crate) fn rows(&self, columns: usize, rows: usize) -> Vec<Vec<Cell>> {
        let mut all = vec![vec![Cell { node: self.top, column: 0, width: columns }]];
        while all.len() < rows {
            let mut next = Vec::new();
            for cell in all.last().into_iter().flatten() {
                self.lay_out(*cell, &mut next);
            }
            if next.is_empty() {
                break;
            }
            next.truncate(MOST_CELLS);
            all.push(next);
        }
        all
    }

    fn lay_out(&self, above: Cell, cells: &mut Vec<Cell>) {
        let whole = u128::from(self.weight(above.node).bytes.max(1));
        let mut before = 0u128;
        let place = |bytes: u128| usize::try_from(bytes * above.width as u128 / whole).unwrap_or(0);
        for child in self.shape.children(above.node) {
            let column = place(before);
            before += u128::from(self.weight(*child).bytes);
            let width = place(before).saturating_sub(column);
            if width > 0 {
                cells.push(Cell { node: *child, column: above.column + column, width });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::stack_profile;

    fn name(state: &FlameState, node: u32) -> &str {
        state.frame(node).map_or("everything", |frame| frame.function.as_str())
    }

    #[test]
    fn frames_are_as_wide_as_their_share() {
        let state = FlameState::new(stack_profile());
        let rows = state.rows(130, 10);
        let line = |row: &Vec<Cell>| -> Vec<(String, usize)> {
            row.iter().map(|cell| (name(&state, cell.node).to_owned(), cell.width)).collect()
        };
        assert_eq!(line(&rows[0]), [("everything".to_owned(), 130)]);
        assert_eq!(line(&rows[2]), [("load".to_owned(), 100), ("<module>".to_owned(), 30)]);
        assert_eq!(line(&rows[4]), [("read".to_owned(), 60)]);
        assert_eq!(rows.len(), 5);
        assert!(state.rows(0, 10).len() < 3);
    }

    #[test]
    fn keys_walk_the_frames_and_enter_widens_one() {
        let mut state = FlameState::new(stack_profile());
        assert_eq!(name(&state, state.chosen()), "main");
        state.key(Key::Down);
        assert_eq!(name(&state, state.chosen()), "load");
        state.key(Key::Right);
        assert_eq!(name(&state, state.chosen()), "<module>");
        state.key(Key::Left);
        state.key(Key::Enter);
        assert_eq!(name(&state, state.rows(100, 1)[0][0].node), "load");
        state.key(Key::Up);
        assert_eq!(name(&state, state.rows(100, 1)[0][0].node), "main", "what is chosen is on the screen");
        state.key(Key::Backspace);
        assert_eq!(state.key(Key::Escape), Flow::Leave);
        state.key(Key::Letter('h'));
        state.key(Key::Letter('h'));
        assert_eq!(state.hidden, Hidden::Libraries);
        assert!((state.share(state.chosen()) - 1.0).abs() < 1e-9);
    }

    #[test]
    fn other_stacks_keep_the_choice() {
        let mut state = FlameState::new(stack_profile());
        state.key(Key::Down);
        state.renew(stack_profile());
        assert_eq!(name(&state, state.chosen()), "load");
        state.renew(StackProfile::default());
        assert!(state.is_empty() && state.rows(80, 5).len() == 1);
    }
}
