//! Pictures of both screens at three sizes, and at every size without a panic.

use ratatui::Terminal;
use ratatui::backend::TestBackend;

use stormlog_model::memory::Memory;

use super::{live, theme::Theme, tree};
use crate::read::source::Excerpt;
use crate::state::key::Key;
use crate::state::live::LiveState;
use crate::state::reading::{MemoryRow, Reading};
use crate::state::tree::TreeState;
use crate::testing::{frame, line, reading, stack_profile};

const SIZES: [(u16, u16); 3] = [(80, 24), (120, 40), (40, 10)];

fn picture(size: (u16, u16), draw: impl FnOnce(&mut ratatui::Frame<'_>)) -> String {
    let mut terminal = Terminal::new(TestBackend::new(size.0, size.1)).unwrap();
    terminal.draw(draw).unwrap();
    terminal.backend().to_string()
}

fn excerpt() -> Excerpt {
    let lines = (50..70).map(|number| (number, format!("    line_{number} = read({number})"))).collect();
    Excerpt { title: "/home/me/loader.py:61".into(), line: 61, lines: Ok(lines) }
}

#[test]
fn the_call_tree() {
    for size in SIZES {
        let mut state = TreeState::new(stack_profile(), "train.py at its peak: 1.27 KiB in 37 allocations");
        for key in [Key::Down, Key::Down] {
            state.key(key);
        }
        let name = format!("tree_{}x{}", size.0, size.1);
        insta::assert_snapshot!(
            name,
            picture(size, |frame| tree::draw(frame, &mut state, None, &Theme::PLAIN))
        );
    }
}

#[test]
fn the_live_view() {
    for size in SIZES {
        let mut state = LiveState::new(reading());
        state.key(Key::Down);
        let name = format!("live_{}x{}", size.0, size.1);
        insta::assert_snapshot!(
            name,
            picture(size, |frame| live::draw(frame, &mut state, None, &Theme::PLAIN, true))
        );
    }
}

#[test]
fn panes_over_and_under() {
    let mut state = LiveState::new(reading());
    state.key(Key::Letter('s'));
    let source = excerpt();
    let draw =
        |frame: &mut ratatui::Frame<'_>| live::draw(frame, &mut state, Some(&source), &Theme::PLAIN, true);
    insta::assert_snapshot!("live_source", picture((80, 24), draw));
    let mut state = LiveState::new(reading());
    state.key(Key::Letter('p'));
    insta::assert_snapshot!(
        "live_processes",
        picture((80, 24), |frame| live::draw(frame, &mut state, None, &Theme::PLAIN, true))
    );
    let mut state = TreeState::new(stack_profile(), "t");
    state.key(Key::Letter('?'));
    insta::assert_snapshot!(
        "tree_help",
        picture((80, 24), |frame| tree::draw(frame, &mut state, None, &Theme::PLAIN))
    );
}

#[test]
fn a_process_without_a_heap_and_one_that_ended() {
    let mut now = reading();
    if let Some(process) = &mut now.chosen {
        process.heap = None;
        process.ended = Some("killed by SIGKILL: kernel oom kill".into());
        process.phase = None;
    }
    let mut state = LiveState::new(now);
    insta::assert_snapshot!(
        "live_ended",
        picture((80, 24), |frame| live::draw(frame, &mut state, None, &Theme::PLAIN, true))
    );
}

#[test]
fn the_memory_of_a_gpu() {
    let mut now = reading();
    let gpu: Memory = "cuda:0".parse().unwrap();
    let process = now.chosen.as_mut().unwrap();
    let heap = process.heap.as_mut().unwrap();
    let host = heap.memories[0];
    heap.memories = vec![host, MemoryRow { memory: gpu, bytes: 5 << 30, peak_bytes: 6 << 30 }];
    (heap.memory, heap.bytes, heap.peak, heap.reserved) = (gpu, 5 << 30, 6 << 30, Some(8 << 30));
    let mut state = LiveState::new(now);
    insta::assert_snapshot!(
        "live_gpu",
        picture((100, 24), |frame| live::draw(frame, &mut state, None, &Theme::PLAIN, true))
    );
}

#[test]
fn no_size_is_too_small_to_survive() {
    let source = excerpt();
    for wide in (1..45).step_by(2) {
        for high in (1..26).step_by(2) {
            for key in ['?', 's', 'p', '/', 'x'].map(Key::Letter) {
                let mut state = TreeState::new(stack_profile(), "a title that is longer than the screen");
                state.key(key);
                picture((wide, high), |frame| tree::draw(frame, &mut state, Some(&source), &Theme::PLAIN));
                for now in [reading(), Reading::default()] {
                    let mut state = LiveState::new(now);
                    state.key(key);
                    picture((wide, high), |frame| {
                        live::draw(frame, &mut state, Some(&source), &Theme::PLAIN, true)
                    });
                }
            }
        }
    }
}

#[test]
fn hostile_names_stay_letters() {
    const HOSTILE: &str = "f\x1b]0;owned\x07\x1b[2J\u{9b}31m\u{202e}x";
    let mut held = stack_profile();
    held.tree.frames[0] = frame(HOSTILE, HOSTILE, 1);
    let mut state = TreeState::new(held, HOSTILE);
    let picture_of_tree = picture((80, 24), |frame| tree::draw(frame, &mut state, None, &Theme::PLAIN));
    let mut now = reading();
    now.processes[0].name = HOSTILE.into();
    if let Some(process) = &mut now.chosen {
        process.ended = Some(HOSTILE.into());
        process.notes[0].text = HOSTILE.into();
        process.trouble = Some(HOSTILE.into());
        if let Some(heap) = &mut process.heap {
            heap.lines = vec![line(HOSTILE, HOSTILE, 1, 5, 5, 5)];
            heap.threads[0].name = Some(HOSTILE.into());
        }
    }
    let text = crate::frame(now.clone(), 100, 30).unwrap();
    let mut state = LiveState::new(now);
    state.key(Key::Letter('>'));
    let picture_of_live = picture((80, 24), |frame| live::draw(frame, &mut state, None, &Theme::PLAIN, true));
    for shown in [picture_of_tree, picture_of_live, text] {
        let is_harmful = |letter: char| (letter.is_control() && letter != '\n') || letter == '\u{202e}';
        assert!(!shown.contains(is_harmful), "{shown:?}");
        assert!(shown.contains("f␛]0;owned"), "{shown}");
    }
}
