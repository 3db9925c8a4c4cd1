//! Pictures of the overview and of the ranks at three sizes, and at every size without a panic.

use ratatui::Terminal;
use ratatui::backend::TestBackend;
use stormlog_node::Item;

use super::theme::Theme;
use super::{overview, ranks};
use crate::state::key::Key;
use crate::state::overview::OverviewState;
use crate::state::ranks::RanksState;
use crate::testing_fleet;

const SIZES: [(u16, u16); 3] = [(80, 24), (120, 40), (300, 60)];

fn overview_picture(size: (u16, u16), state: &mut OverviewState) -> String {
    let Ok(mut terminal) = Terminal::new(TestBackend::new(size.0, size.1));
    let Ok(_) = terminal.draw(|frame| {
        let area = frame.area();
        overview::draw(frame, area, state, &Theme::PLAIN);
    });
    terminal.backend().to_string()
}

fn ranks_picture(size: (u16, u16), state: &mut RanksState) -> String {
    let Ok(mut terminal) = Terminal::new(TestBackend::new(size.0, size.1));
    let Ok(_) = terminal.draw(|frame| {
        let area = frame.area();
        ranks::draw(frame, area, state, &Theme::PLAIN);
    });
    terminal.backend().to_string()
}

fn overview_state() -> OverviewState {
    let mut state = OverviewState::default();
    state.take(testing_fleet::overview());
    state
}

fn ranks_state() -> RanksState {
    let mut state = RanksState::default();
    state.take(testing_fleet::jobs());
    state
}

#[test]
fn overview_at_three_sizes() {
    for size in SIZES {
        insta::assert_snapshot!(
            format!("overview_{}x{}", size.0, size.1),
            overview_picture(size, &mut overview_state())
        );
    }
}

#[test]
fn ranks_at_three_sizes() {
    for size in SIZES {
        insta::assert_snapshot!(
            format!("ranks_{}x{}", size.0, size.1),
            ranks_picture(size, &mut ranks_state())
        );
    }
    let mut state = ranks_state();
    state.key(Key::Letter('J'));
    insta::assert_snapshot!("ranks_chooser", ranks_picture((80, 24), &mut state));
}

#[test]
fn no_size_is_too_small_and_no_name_moves_the_cursor() {
    let hostile = "a\x1b]0;owned\x07\x1b[2J\u{9b}31m\u{202e}x";
    let mut found = testing_fleet::overview();
    found.living.push(testing_fleet::run(hostile, 1, None, None));
    found.problems = vec![hostile.to_owned()];
    if let Some(gpu) = found.gpus.iter_mut().flatten().next() {
        gpu.name = Some(hostile.to_owned());
        if let Some(process) = gpu.processes.iter_mut().flatten().next() {
            process.command = vec![hostile.to_owned()];
        }
    }
    let mut jobs = testing_fleet::jobs();
    jobs[0].name = hostile.to_owned();
    jobs[0].ranks[0].host = Some(hostile.into());
    for wide in (1..130).step_by(7) {
        for high in (1..30).step_by(4) {
            let mut state = OverviewState::default();
            let mut picture = overview_picture((wide, high), &mut state);
            state.take(found.clone());
            picture.push_str(&overview_picture((wide, high), &mut state));
            let mut state = RanksState::default();
            picture.push_str(&ranks_picture((wide, high), &mut state));
            state.take(jobs.clone());
            picture.push_str(&ranks_picture((wide, high), &mut state));
            state.key(Key::Letter('J'));
            picture.push_str(&ranks_picture((wide, high), &mut state));
            let is_harmful = |letter: char| (letter.is_control() && letter != '\n') || letter == '\u{202e}';
            assert!(!picture.contains(is_harmful), "{picture:?}");
        }
    }
}

#[test]
fn text_of_top_has_ranks_then_the_machine() {
    let text = crate::top_text(testing_fleet::overview(), &testing_fleet::jobs(), 100);
    let place = |word: &str| text.find(word).unwrap_or_else(|| panic!("{word}: {text}"));
    assert!(place("missing ranks: 7") < place("GPU 0"), "{text}");
    assert!(place("GPU 0") < place("prepare.py"), "{text}");
    assert!(!text.lines().any(|line| line.ends_with(' ')), "{text}");
}

#[test]
fn choice_of_a_row_survives_another_look_and_another_order() {
    let mut state = overview_state();
    state.key(Key::Down);
    assert_eq!(state.chosen().map(Item::name), Some("serve.py"));
    let mut next = testing_fleet::overview();
    next.living.reverse();
    state.take(next);
    assert_eq!(state.chosen().map(Item::name), Some("serve.py"));
    state.key(Key::Letter('s'));
    assert_eq!(state.chosen().map(Item::name), Some("serve.py"));
}

#[test]
fn filter_finds_programs_verdicts_and_states() {
    let mut state = overview_state();
    for (typed, count) in [("train", 2), ("oom", 1), ("completed", 1), ("nothing", 0)] {
        state.key(Key::Letter('/'));
        typed.chars().for_each(|letter| assert!(state.key(Key::Letter(letter))));
        state.key(Key::Enter);
        assert_eq!(state.len(), count, "{typed}");
        assert!(state.key(Key::Escape), "the filter goes first");
        assert_eq!(state.len(), 6);
    }
    assert!(!state.key(Key::Escape), "then the shell has it");
}

#[test]
fn ranks_are_sorted_by_urgency_and_jobs_are_changed_by_brackets() {
    let mut state = ranks_state();
    assert_eq!(state.chosen().map(|rank| rank.rank), Some(2), "nearest to its limit");
    state.sort_by(crate::state::ranks::RankSort::Peak);
    assert_eq!(state.rank_at(0).map(|rank| rank.rank), Some(5));
    state.key(Key::Letter(']'));
    assert_eq!(state.shown_job().map(|job| job.name.as_str()), Some("old.py"));
    state.key(Key::Letter(']'));
    assert_eq!(state.shown_job().map(|job| job.name.as_str()), Some("4711"));
    state.key(Key::Letter('J'));
    state.key(Key::Letter('j'));
    state.key(Key::Enter);
    assert_eq!(state.shown_job().map(|job| job.name.as_str()), Some("old.py"));
    state.show_run(std::path::Path::new("/runs/train"));
    assert_eq!(state.shown_job().map(|job| job.name.as_str()), Some("4711"));
}

#[test]
fn job_that_vanishes_gives_way_to_the_first() {
    let mut state = ranks_state();
    state.key(Key::Letter(']'));
    let mut jobs = testing_fleet::jobs();
    jobs.pop();
    state.take(jobs);
    assert_eq!(state.shown_job().map(|job| job.name.as_str()), Some("4711"));
    state.take(Vec::new());
    assert!(state.shown_job().is_none() && state.chosen().is_none());
    state.key(Key::End);
}
