//! Keys on a small tree.

use super::*;
use crate::testing::stack_profile;

fn names(state: &TreeState) -> Vec<String> {
    let name = |row: &Row| {
        let cells = state.cells(*row);
        let name = cells.frame.map_or("all", |frame| frame.function.as_str());
        format!("{}{name} {}", " ".repeat(row.depth), cells.bytes)
    };
    state.rows.iter().map(name).collect()
}

#[test]
fn biggest_first_and_linear_chains_open_at_once() {
    let mut state = TreeState::new(stack_profile(), "t");
    // The way to most of it is open from the start, down to where less than half is left.
    let heavy = ["all 1300", " main 1300", "  load 1000", "  decode 1000", "  read 600", "  <module> 300"];
    assert_eq!(names(&state), heavy);
    state.key(Key::Letter('c'));
    assert_eq!(names(&state), ["all 1300", " main 1300"]);
    state.key(Key::Down);
    state.key(Key::Right);
    state.key(Key::Down);
    assert_eq!(names(&state), ["all 1300", " main 1300", "  load 1000", "  <module> 300"]);
    state.key(Key::Right);
    // `load` has one callee, that one too: all open with one key, and none is indented.
    assert_eq!(names(&state), heavy);
    state.key(Key::Left);
    assert_eq!(names(&state).len(), 4);
    state.key(Key::Left);
    assert_eq!(state.chosen().map(|frame| frame.function.as_str()), Some("main"));
}

#[test]
fn hidden_frames_give_their_weight_to_their_callers() {
    let mut state = TreeState::new(stack_profile(), "t");
    state.key(Key::Letter('h'));
    assert_eq!(
        names(&state),
        ["all 1300", " main 1300", "  load 1000", "  decode 1000", "  read 600", "  helper 300"]
    );
    state.key(Key::Letter('h'));
    state.key(Key::Letter('e'));
    assert_eq!(names(&state), ["all 1300", " main 1300", "  load 1000", "  helper 300"]);
    let load = state.rows[2];
    assert_eq!(state.cells(load).own, 1000, "json is hidden, its memory is not");
    state.key(Key::Letter('h'));
    assert_eq!(names(&state).len(), 6);
}

#[test]
fn search_opens_the_way_and_goes_round() {
    let mut state = TreeState::new(stack_profile(), "t");
    for key in ['/', 'R', 'e', 'a', 'd'] {
        state.key(Key::Letter(key));
    }
    state.key(Key::Enter);
    assert_eq!(state.notice.as_deref(), Some("nothing matches “Read”"));
    for key in ['/', 'r', 'e', 'a', 'd'] {
        state.key(Key::Letter(key));
    }
    state.key(Key::Enter);
    assert_eq!(state.chosen().map(|frame| frame.function.as_str()), Some("read"));
    state.key(Key::Letter('n'));
    assert_eq!(state.chosen().map(|frame| frame.function.as_str()), Some("read"));
    state.key(Key::Escape);
    assert_eq!(state.search.text, "");
    assert_eq!(state.key(Key::Letter('q')), Flow::Leave);
}

#[test]
fn the_chosen_row_stays_chosen_when_frames_are_hidden() {
    let mut state = TreeState::new(stack_profile(), "t");
    state.key(Key::Down);
    state.key(Key::Down);
    state.key(Key::Letter('h'));
    assert_eq!(state.chosen().map(|frame| frame.function.as_str()), Some("load"));
    state.key(Key::Letter('o'));
    assert_eq!(state.chosen().map(|frame| frame.function.as_str()), Some("load"));
    assert!(state.by_count);
}

#[test]
fn an_empty_tree_takes_every_key() {
    let mut state = TreeState::new(StackProfile::default(), "t");
    assert!(state.is_empty());
    for key in "hheocs/x".chars().map(Key::Letter).chain([
        Key::Enter,
        Key::Letter('n'),
        Key::Down,
        Key::Left,
        Key::Right,
        Key::End,
    ]) {
        assert_eq!(state.key(key), Flow::Stay);
    }
}
