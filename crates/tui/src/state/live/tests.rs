//! Keys on readings made by hand.

use super::*;
use stormlog_model::memory::Memory;

use crate::testing::{line, reading};

fn functions(state: &LiveState) -> Vec<&str> {
    state.rows.iter().map(|index| state.lines()[*index].frame.function.as_str()).collect()
}

#[test]
fn three_orders() {
    let mut state = LiveState::new(reading());
    assert_eq!(functions(&state), ["read_all", "build", "put", "main"]);
    state.key(Key::Letter('t'));
    assert_eq!(functions(&state), ["main", "read_all", "build", "put"]);
    state.key(Key::Letter('a'));
    assert_eq!(functions(&state), ["main", "put", "read_all", "build"]);
}

#[test]
fn the_filter_works_while_it_is_typed() {
    let mut state = LiveState::new(reading());
    state.key(Key::Letter('/'));
    state.key(Key::Letter('l'));
    state.key(Key::Letter('o'));
    assert_eq!(functions(&state), ["read_all"], "by file: loader.py");
    state.key(Key::Letter('q'));
    assert_eq!(functions(&state), [""; 0]);
    state.key(Key::Backspace);
    state.key(Key::Enter);
    assert_eq!(functions(&state), ["read_all"]);
    state.key(Key::Escape);
    assert_eq!(functions(&state).len(), 4);
    assert_eq!(state.key(Key::Escape), Flow::Leave);
}

#[test]
fn the_cursor_follows_its_line_once_moved() {
    let mut state = LiveState::new(reading());
    state.key(Key::Down);
    assert_eq!(state.chosen().map(|frame| frame.function.as_str()), Some("build"));
    let mut later = reading();
    if let Some(heap) = later.chosen.as_mut().and_then(|process| process.heap.as_mut()) {
        heap.lines.push(line("late", "late.py", 1, 1 << 40, 1 << 40, 1));
    }
    assert!(state.update(later.clone()));
    assert_eq!(state.chosen().map(|frame| frame.function.as_str()), Some("build"));
    state.key(Key::Home);
    state.update(later);
    assert_eq!(state.chosen().map(|frame| frame.function.as_str()), Some("late"));
}

#[test]
fn paused_means_nothing_moves_and_nothing_is_lost() {
    let mut state = LiveState::new(reading());
    state.key(Key::Letter(' '));
    let later = Reading { at_ns: reading().at_ns + 5, ..reading() };
    assert!(!state.update(later.clone()));
    assert_eq!(state.reading.at_ns, reading().at_ns);
    state.key(Key::Letter(' '));
    assert_eq!(state.reading.at_ns, later.at_ns);
}

#[test]
fn threads_go_round_with_all_of_them_between() {
    let mut state = LiveState::new(reading());
    let mut seen = Vec::new();
    for _ in 0..3 {
        state.key(Key::Letter('>'));
        seen.push(state.wish().thread);
    }
    assert_eq!(seen, [Some(100), Some(101), None]);
    state.key(Key::Letter('<'));
    assert_eq!(state.wish().thread, Some(101));
    assert!(!state.update(reading()), "a look at all threads is not what is asked for now");
}

#[test]
fn another_process_is_chosen_from_the_list() {
    let mut state = LiveState::new(reading());
    state.key(Key::Letter('p'));
    state.key(Key::Down);
    state.key(Key::Enter);
    assert_eq!(state.wish(), Wish { pid: Some(4712), ..Wish::default() });
    state.key(Key::Tab);
    assert_eq!(state.wish().pid, Some(4711));
}

#[test]
fn nothing_recorded_takes_every_key() {
    let mut state = LiveState::new(Reading::default());
    for key in "toa/x".chars().map(Key::Letter).chain([Key::Enter]) {
        state.key(key);
    }
    for key in
        "<>p".chars().map(Key::Letter).chain([Key::Enter, Key::Tab, Key::Down, Key::End, Key::Letter('s')])
    {
        assert_eq!(state.key(key), Flow::Stay);
    }
    assert_eq!(state.wish(), Wish::default());
}

#[test]
fn m_goes_through_the_memories() {
    let mut now = reading();
    let gpu: Memory = "cuda:0".parse().unwrap();
    let heap = now.chosen.as_mut().unwrap().heap.as_mut().unwrap();
    heap.memories.push(MemoryRow { memory: gpu, bytes: 5 << 30, peak_bytes: 6 << 30 });
    let mut state = LiveState::new(now.clone());
    state.key(Key::Letter('>'));
    state.key(Key::Letter('m'));
    assert_eq!(
        state.wish(),
        Wish { memory: Some(gpu), ..Wish::default() },
        "threads differ between memories"
    );
    assert!(!state.update(now.clone()), "a look at the other memory comes too late");
    now.chosen.as_mut().unwrap().heap.as_mut().unwrap().memory = gpu;
    assert!(state.update(now));
    state.key(Key::Letter('m'));
    assert_eq!(state.wish().memory, Some(Memory::Host));
}

#[test]
fn m_does_nothing_where_one_memory_is_recorded() {
    let mut state = LiveState::new(reading());
    state.key(Key::Letter('m'));
    assert_eq!(state.wish(), Wish::default());
}
