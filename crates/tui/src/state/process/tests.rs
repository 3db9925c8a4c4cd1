//! Every key and click, on lanes made by hand.

use super::*;
use crate::state::live::Order;
use crate::state::tree::Hidden;
use crate::testing::{process_reading, stack_profile};

fn state() -> ProcessState {
    let mut state = ProcessState::new("a run".into(), None);
    state.plot = PlotArea { column: 20, width: 60, top: 4, bottom: 9, head: Some(10) };
    assert!(state.update(process_reading(), false));
    state
}

fn press(state: &mut ProcessState, keys: &str) {
    for key in keys.chars() {
        assert!(state.key(Key::Letter(key)), "{key}");
    }
}

/// Answers what is asked, as the reader does.
fn answer(state: &mut ProcessState) -> Reading {
    let (wish, mut reading) = (state.wish(), process_reading());
    if let Some(heap) = reading.chosen.as_mut().and_then(|process| process.heap.as_mut()) {
        (heap.at_ns, heap.moment_ns, heap.thread) = (wish.at_ns, wish.at_ns, wish.thread);
        heap.memory = wish.memory.unwrap_or_default();
        heap.stacks = wish.has_stacks.then(stack_profile);
    }
    reading
}

fn mouse(button: Button, column: u16, row: u16) -> Mouse {
    Mouse { button, column, row, has_control: false }
}

#[test]
fn moment_of_another_view_is_looked_at_once_its_time_is_known() {
    let mut state = ProcessState::new("a run".into(), None);
    let (first, last) = self::state().axis.whole();
    let middle = (first + last) / 2;
    state.show_moment(Some(middle * MS));
    assert_eq!(state.wish().at_ns, None, "nothing is read yet");
    assert!(state.update(process_reading(), false));
    assert_eq!((state.axis.cursor(), state.wish().at_ns), (Some(middle), Some(middle * MS)));
    state.key(Key::End);
    let answered = answer(&mut state);
    assert!(state.update(answered, false));
    assert_eq!(state.axis.cursor(), None, "asked for once");
    state.show_moment(Some(first * MS));
    assert_eq!(state.axis.cursor(), Some(first));
}

#[test]
fn time_keys_move_the_cursor_and_ask_for_its_moment() {
    let mut state = state();
    assert_eq!((state.wish().at_ns, state.axis.cursor()), (None, None));
    state.key(Key::Left);
    let first = state.wish().at_ns.unwrap();
    assert_eq!(Some(first / MS), state.axis.cursor());
    assert!(
        !state.is_current() && !state.update(process_reading(), false),
        "an answer to the question before"
    );
    let answered = answer(&mut state);
    assert!(state.update(answered, false) && state.is_current());
    press(&mut state, "h");
    assert!(state.wish().at_ns.unwrap() < first);
    state.key(Key::Right);
    press(&mut state, "l");
    assert_eq!(state.wish().at_ns, None, "the end is followed");
    for (far, near) in [(Key::FarLeft, Key::FarRight), (Key::Letter('H'), Key::Letter('L'))] {
        state.key(far);
        assert!(state.wish().at_ns.unwrap() < first);
        state.key(near);
        assert_eq!(state.wish().at_ns, None);
    }
    state.key(Key::Home);
    assert_eq!(state.axis.at(), state.axis.whole().0);
    state.key(Key::End);
    assert_eq!(state.axis.cursor(), None);
}

#[test]
fn brackets_and_the_wheel_zoom_and_zero_shows_everything() {
    let mut state = state();
    press(&mut state, "]]");
    assert!(state.axis.is_zoomed());
    press(&mut state, "[");
    assert!(state.axis.is_zoomed());
    press(&mut state, "0");
    assert!(!state.axis.is_zoomed());
    state.mouse(mouse(Button::WheelUp, 30, 5));
    assert!(state.axis.is_zoomed() && state.axis.cursor().is_none());
    let (from, to) = state.axis.window();
    assert!(from > state.axis.whole().0 && to < state.axis.whole().1, "around the pointer");
    state.mouse(mouse(Button::WheelDown, 30, 5));
    assert!(!state.axis.is_zoomed());
}

#[test]
fn click_and_drag_on_the_lanes_set_the_cursor() {
    let mut state = state();
    state.mouse(mouse(Button::Press, 20, 5));
    let first = state.axis.cursor().unwrap();
    state.mouse(mouse(Button::Drag, 50, 5));
    assert!(state.axis.cursor().unwrap() > first);
    state.mouse(mouse(Button::Press, 5, 5));
    assert!(state.axis.cursor().unwrap() > first, "a click on a name means nothing");
    state.mouse(mouse(Button::Press, 79, 5));
    assert_eq!(state.axis.cursor(), None, "the last column is the end");
}

#[test]
fn lines_are_ordered_filtered_and_scrolled_as_in_the_live_view() {
    let mut state = state();
    press(&mut state, "t");
    assert_eq!(state.live.order, Order::Total);
    press(&mut state, "s");
    assert_eq!(state.live.order, Order::Count);
    state.mouse(mouse(Button::Press, 3, 10));
    assert_eq!(state.live.order, Order::Own);
    state.mouse(mouse(Button::WheelDown, 3, 14));
    assert_eq!(state.live.cursor.at, 3);
    press(&mut state, "g/lo");
    assert!(state.takes_all_keys() && state.live.rows.len() == 1);
    state.key(Key::Enter);
    assert!(!state.takes_all_keys());
    state.key(Key::Enter);
    assert!(state.source_of().is_some_and(|frame| frame.function == "read_all"));
    assert!(state.key(Key::Escape) && state.source_of().is_none());
    assert!(state.key(Key::Escape) && state.live.rows.len() == 4);
    assert!(!state.key(Key::Escape), "nothing is open: the shell goes back");
}

#[test]
fn another_memory_thread_or_process_is_asked_for() {
    let mut state = state();
    press(&mut state, "m");
    assert_eq!(state.wish().memory.map(|memory| memory.to_string()).as_deref(), Some("cuda:0"));
    press(&mut state, ">");
    assert_eq!(state.wish().thread, Some(100));
    press(&mut state, "<");
    assert_eq!(state.wish().thread, None);
    state.key(Key::Left);
    press(&mut state, "p");
    assert!(state.takes_all_keys());
    state.key(Key::Down);
    state.key(Key::Enter);
    let wish = state.wish();
    assert_eq!((wish.pid, wish.memory, wish.has_lanes), (Some(4712), None, true));
}

#[test]
fn tree_and_flame_show_the_stacks_of_the_cursor() {
    let mut state = state();
    press(&mut state, "T");
    assert!(state.wish().has_stacks && matches!(state.pane, Pane::Tree(None)));
    let answered = answer(&mut state);
    assert!(state.update(answered, true), "while paused too");
    let Pane::Tree(Some(tree)) = &mut state.pane else { panic!("{:?}", state.pane) };
    assert_eq!(tree.hidden, Hidden::Nothing);
    state.key(Key::Down);
    press(&mut state, "h");
    let Pane::Tree(Some(tree)) = &state.pane else { panic!("{:?}", state.pane) };
    assert_eq!(tree.hidden, Hidden::Imports, "keys are those of the tree");
    press(&mut state, "/q");
    assert!(state.takes_all_keys() && state.entry().is_some_and(|entry| entry.text == "q"));
    state.key(Key::Escape);
    state.key(Key::FarLeft);
    assert!(state.wish().at_ns.is_some(), "time moves with Shift");
    press(&mut state, "f");
    assert!(matches!(state.pane, Pane::Flame(None)));
    let answered = answer(&mut state);
    assert!(state.update(answered, false) && matches!(state.pane, Pane::Flame(Some(_))));
    assert!(state.key(Key::Escape) && matches!(state.pane, Pane::Lines));
    assert!(!state.wish().has_stacks);
    press(&mut state, "TT");
    assert!(matches!(state.pane, Pane::Lines));
}

#[test]
fn alerts_are_stepped_through_and_a_forecast_is_counted_down() {
    let mut state = state();
    let words = state.usage().unwrap();
    assert!(
        words.starts_with("in use 2.80 GiB of 4.00 GiB (70 %), growing") && words.contains("full in"),
        "{words}"
    );
    press(&mut state, "N");
    assert_eq!(state.mark().map(|mark| mark.name.as_str()), Some("forecast"));
    let last = state.axis.at();
    press(&mut state, "N");
    assert!(state.axis.at() < last);
    assert_eq!(state.mark().map(|mark| mark.name.as_str()), Some("warning"));
    press(&mut state, "n");
    assert_eq!(state.axis.at(), last);
    assert_eq!(state.phase(), Some("train"));
    assert_eq!(state.step(), Some((6, 6)));
}

#[test]
fn paused_axis_stays_and_a_question_is_answered() {
    let mut state = state();
    let whole = state.axis.whole();
    let mut later = process_reading();
    later.at_ns += 5_000_000_000;
    assert!(!state.update(later.clone(), true));
    state.key(Key::Left);
    let mut answered = answer(&mut state);
    answered.at_ns += 5_000_000_000;
    assert!(state.update(answered, true));
    assert_eq!(state.axis.whole(), whole);
    state.key(Key::End);
    assert!(state.update(later, false));
    assert_eq!(state.axis.whole().1, whole.1 + 5_000);
}

#[test]
fn counters_of_the_shown_memory_come_first() {
    let mut state = state();
    let names = |state: &ProcessState| -> Vec<String> {
        state.counters().iter().map(|(lane, line)| format!("{} {}", lane.memory, line.name)).collect()
    };
    let host = names(&state);
    assert_eq!(host[..3], ["host RSS", "host heap", "limit in use"]);
    press(&mut state, "m");
    let answered = answer(&mut state);
    state.update(answered, false);
    assert_eq!(names(&state)[0], "cuda:0 allocated");
    assert_eq!(names(&state).len(), host.len());
}
