//! Pictures of the process view: living, dead, without a heap, with a GPU, paused in the past, with hostile names.

use ratatui::Terminal;
use ratatui::backend::TestBackend;

use super::local_time::LocalTime;
use super::process;
use super::theme::Theme;
use crate::state::key::Key;
use crate::state::process::ProcessState;
use crate::state::reading::Reading;
use crate::testing::{line, process_reading, reading, stack_profile};

const SIZES: [(u16, u16); 3] = [(80, 22), (120, 38), (300, 58)];

fn state(reading: Reading) -> ProcessState {
    let mut state = ProcessState::new("a run".into(), None);
    state.update(reading, false);
    state
}

fn picture(size: (u16, u16), state: &mut ProcessState) -> String {
    let mut terminal = Terminal::new(TestBackend::new(size.0, size.1)).unwrap();
    let draw = |frame: &mut ratatui::Frame<'_>| {
        process::draw(frame, frame.area(), state, None, &LocalTime::utc(), &Theme::PLAIN);
    };
    terminal.draw(draw).unwrap();
    terminal.backend().to_string()
}

/// Answers what is asked.
fn answered(state: &mut ProcessState, change: impl Fn(&mut Reading)) {
    let wish = state.wish();
    let mut reading = process_reading();
    change(&mut reading);
    if let Some(heap) = reading.chosen.as_mut().and_then(|process| process.heap.as_mut()) {
        (heap.at_ns, heap.moment_ns, heap.thread) = (wish.at_ns, wish.at_ns, wish.thread);
        heap.memory = wish.memory.unwrap_or_default();
        heap.stacks = wish.has_stacks.then(stack_profile);
    }
    assert!(state.update(reading, false));
}

fn dead(reading: &mut Reading) {
    if let Some(process) = &mut reading.chosen {
        process.ended = Some("killed by SIGKILL: kernel oom kill".into());
    }
}

#[test]
fn living_process_at_three_sizes() {
    for size in SIZES {
        let mut state = state(process_reading());
        let name = format!("process_{}x{}", size.0, size.1);
        insta::assert_snapshot!(name, picture(size, &mut state));
    }
}

#[test]
fn dead_process_begins_with_its_answer() {
    let mut now = process_reading();
    dead(&mut now);
    let mut state = state(now);
    state.answer = vec![
        "train.py (pid 4711) was killed by the kernel's OOM killer.".into(),
        "  held by   1.00 GiB  loader.py:61 read_all".into(),
        "            512 MiB   model.py:31 build".into(),
        "  sure      100 %: the kernel's log names the process".into(),
    ];
    insta::assert_snapshot!("process_dead_80x22", picture(SIZES[0], &mut state));
    insta::assert_snapshot!("process_dead_120x38", picture(SIZES[1], &mut state));
}

#[test]
fn past_moment_of_a_gpu_with_zoom() {
    let mut state = state(process_reading());
    picture(SIZES[1], &mut state);
    for key in [Key::Letter('m'), Key::FarLeft, Key::FarLeft, Key::FarLeft, Key::Letter(']')] {
        state.key(key);
    }
    answered(&mut state, |_| {});
    insta::assert_snapshot!("process_gpu_past", picture(SIZES[1], &mut state));
}

#[test]
fn tree_and_flame_of_a_moment() {
    let mut state = state(process_reading());
    state.key(Key::Letter('T'));
    insta::assert_snapshot!("process_tree_waits", picture(SIZES[0], &mut state));
    answered(&mut state, |_| {});
    insta::assert_snapshot!("process_tree", picture(SIZES[0], &mut state));
    state.key(Key::Letter('f'));
    answered(&mut state, |_| {});
    insta::assert_snapshot!("process_flame", picture(SIZES[1], &mut state));
}

#[test]
fn process_without_a_heap_or_without_any_recording() {
    let mut now = process_reading();
    let process = now.chosen.as_mut().unwrap();
    process.heap = None;
    insta::assert_snapshot!("process_without_heap", picture(SIZES[0], &mut state(now.clone())));
    let process = now.chosen.as_mut().unwrap();
    process.is_recorded = false;
    let lanes = process.lanes.as_mut().unwrap();
    (lanes.marks, lanes.stretches) = Default::default();
    lanes.lanes.truncate(1);
    insta::assert_snapshot!("process_plain", picture(SIZES[0], &mut state(now)));
}

#[test]
fn nothing_chosen_nothing_read_and_trouble_are_sentences() {
    let none = picture(SIZES[0], &mut ProcessState::new(String::new(), None));
    assert!(none.contains("No process is chosen"), "{none}");
    let first = picture(SIZES[0], &mut ProcessState::new("a run".into(), None));
    assert!(first.contains("reading a run…"), "{first}");
    let mut broken = ProcessState::new("x".into(), None);
    broken.trouble = Some("/x: not a recording".into());
    assert!(picture(SIZES[0], &mut broken).contains("not a recording"));
}

#[test]
fn capture_without_history_states_it() {
    let mut state = state(process_reading());
    state.key(Key::Home);
    answered(&mut state, |reading| {
        if let Some(heap) = reading.chosen.as_mut().and_then(|process| process.heap.as_mut()) {
            heap.past_trouble = Some("records before 3 s were folded".into());
        }
    });
    let shown = picture(SIZES[0], &mut state);
    assert!(shown.contains("folded") && !shown.contains("read_all"), "{shown}");
}

#[test]
fn hostile_names_stay_letters() {
    const HOSTILE: &str = "f\x1b]0;owned\x07\x1b[2J\u{9b}31m\u{202e}函x";
    let mut now = process_reading();
    now.processes[0].name = HOSTILE.into();
    now.output = Some(HOSTILE.into());
    let process = now.chosen.as_mut().unwrap();
    process.ended = Some(HOSTILE.into());
    process.trouble = Some(HOSTILE.into());
    process.heap.as_mut().unwrap().lines = vec![line(HOSTILE, HOSTILE, 1, 5, 5, 5)];
    let lanes = process.lanes.as_mut().unwrap();
    lanes.marks[1].text = HOSTILE.into();
    lanes.marks[1].name = HOSTILE.into();
    lanes.stretches[0].name = HOSTILE.into();
    lanes.lanes[0].memory = HOSTILE.into();
    lanes.lanes[0].lines[0].name = HOSTILE.into();
    let mut state = state(now);
    let plain = picture(SIZES[1], &mut state);
    state.answer = vec![HOSTILE.into()];
    state.key(Key::Letter('p'));
    for shown in [plain, picture(SIZES[1], &mut state)] {
        let is_harmful = |letter: char| (letter.is_control() && letter != '\n') || letter == '\u{202e}';
        assert!(!shown.contains(is_harmful), "{shown:?}");
        assert!(shown.contains("f␛]0;owned"), "{shown}");
    }
}

#[test]
fn no_size_is_too_small_to_survive() {
    for wide in (1..60).step_by(7) {
        for high in (1..26).step_by(3) {
            for key in ['T', 'f', 'p', '/', ']', 'h'] {
                for now in [process_reading(), reading(), Reading::default()] {
                    let mut state = state(now);
                    state.key(Key::Letter(key));
                    picture((wide, high), &mut state);
                    state.key(Key::FarLeft);
                    picture((wide, high), &mut state);
                }
            }
        }
    }
}
