//! Pictures of the lists of findings and of crashes.

use ratatui::Terminal;
use ratatui::backend::TestBackend;

use super::theme::Theme;
use super::{actions, crashes, findings};
use crate::state::actions::ActionsState;
use crate::state::crashes::CrashesState;
use crate::state::findings::FindingsState;
use crate::state::key::Key;
use crate::testing::{crashes_look, findings_look, jobs};

const SIZES: [(u16, u16); 3] = [(80, 24), (120, 40), (300, 60)];

/// What the shell leaves of a screen of that size.
fn picture(size: (u16, u16), draw: impl FnOnce(&mut ratatui::Frame<'_>)) -> String {
    let mut terminal = Terminal::new(TestBackend::new(size.0, size.1 - 2)).unwrap();
    terminal.draw(draw).unwrap();
    terminal.backend().to_string()
}

#[test]
fn findings_at_three_sizes() {
    for size in SIZES {
        let mut state = FindingsState::default();
        state.take(findings_look());
        let draw = |frame: &mut ratatui::Frame<'_>| {
            findings::draw(frame, frame.area(), &mut state, &Theme::PLAIN);
        };
        insta::assert_snapshot!(format!("findings_{}x{}", size.0, size.1), picture(size, draw));
    }
}

#[test]
fn finding_with_its_evidence_and_an_empty_list() {
    let mut state = FindingsState::default();
    let draw = |frame: &mut ratatui::Frame<'_>, state: &mut FindingsState| {
        findings::draw(frame, frame.area(), state, &Theme::PLAIN);
    };
    insta::assert_snapshot!("findings_reading", picture((80, 24), |frame| draw(frame, &mut state)));
    state.take(Default::default());
    insta::assert_snapshot!("findings_empty", picture((80, 24), |frame| draw(frame, &mut state)));
    state.take(findings_look());
    state.key(Key::Enter);
    insta::assert_snapshot!("findings_page", picture((80, 24), |frame| draw(frame, &mut state)));
}

#[test]
fn crashes_at_three_sizes() {
    for size in SIZES {
        let mut state = CrashesState::default();
        state.take(crashes_look());
        state.key(Key::Down);
        let draw = |frame: &mut ratatui::Frame<'_>| {
            crashes::draw(frame, frame.area(), &mut state, &Theme::PLAIN);
        };
        insta::assert_snapshot!(format!("crashes_{}x{}", size.0, size.1), picture(size, draw));
    }
}

#[test]
fn lists_have_no_size_that_panics() {
    for columns in (1..40).step_by(3) {
        for rows in 3..8 {
            let mut state = FindingsState::default();
            state.take(findings_look());
            picture((columns, rows), |frame| {
                findings::draw(frame, frame.area(), &mut state, &Theme::PLAIN);
            });
            state.key(Key::Enter);
            picture((columns, rows), |frame| {
                findings::draw(frame, frame.area(), &mut state, &Theme::PLAIN);
            });
            let mut state = CrashesState::default();
            state.take(crashes_look());
            picture((columns, rows), |frame| {
                crashes::draw(frame, frame.area(), &mut state, &Theme::PLAIN);
            });
        }
    }
}

fn draw_actions(size: (u16, u16), state: &mut ActionsState) -> String {
    picture(size, |frame| {
        actions::draw(frame, frame.area(), state, &Theme::PLAIN);
    })
}

fn acting() -> ActionsState {
    let mut state =
        ActionsState::new(Some(std::path::Path::new(stormlog_catalog::run::layout::RUNS_DIRECTORY)));
    state.about(Some("/runs/2026-11-15T10-22-31Z-train-4f2a".into()), Some(4711), false);
    state
}

#[test]
fn actions_at_three_sizes() {
    for size in SIZES {
        let mut state = acting();
        state.take_jobs(jobs());
        for letter in "epython3 train.py".chars() {
            state.key(Key::Letter(letter));
        }
        state.key(Key::Escape);
        insta::assert_snapshot!(format!("actions_{}x{}", size.0, size.1), draw_actions(size, &mut state));
    }
}

#[test]
fn form_question_and_output_of_actions() {
    let mut state = acting();
    state.key(Key::Enter);
    insta::assert_snapshot!("actions_form", draw_actions((80, 24), &mut state));
    state.key(Key::Escape);
    state.menu.at = 14;
    state.key(Key::Enter);
    state.take_target(Ok((4711, "me", "python3 tr\x1b[2Jain.py --token …")));
    insta::assert_snapshot!("actions_question", draw_actions((80, 24), &mut state));
    state.key(Key::Letter('n'));
    state.take_jobs(jobs());
    state.key(Key::Letter('o'));
    state.key(Key::Enter);
    insta::assert_snapshot!("actions_output", draw_actions((80, 24), &mut state));
    for columns in 1..40 {
        for rows in 3..8 {
            draw_actions((columns, rows), &mut state);
            draw_actions((columns, rows), &mut acting());
        }
    }
}
