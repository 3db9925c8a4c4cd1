use stormlog_model::{Finding, Holder, Severity};

use super::*;
use crate::testing::findings_look as look;

fn titles(state: &FindingsState) -> Vec<String> {
    (0..state.len()).filter_map(|line| state.at(line)).map(|(_, row)| row.finding.title.clone()).collect()
}

#[test]
fn newest_recording_comes_first_and_sorting_goes_by_column() {
    let mut state = FindingsState::default();
    state.take(look());
    assert_eq!(
        titles(&state),
        [
            "host memory grew by 1.27 GiB in 12 min",
            "killed: out of memory",
            "rank 3 holds more than the others"
        ]
    );
    state.key(Key::Letter('s'));
    assert_eq!(state.sort, FindingSort::Severity);
    assert_eq!(titles(&state)[0], "killed: out of memory");
    state.sort_by(FindingSort::Memory);
    assert_eq!(titles(&state)[0], "killed: out of memory");
    state.sort_by(FindingSort::Holder);
    assert_eq!(titles(&state)[0], "host memory grew by 1.27 GiB in 12 min");
}

#[test]
fn filter_narrows_and_escape_widens() {
    let mut state = FindingsState::default();
    state.take(look());
    for key in "/rank 3".chars() {
        assert_eq!(state.key(Key::Letter(key)), FindingsAction::Used);
    }
    state.key(Key::Enter);
    assert_eq!(titles(&state), ["rank 3 holds more than the others"]);
    assert_eq!(state.key(Key::Escape), FindingsAction::Used);
    assert_eq!(state.len(), 3);
    assert_eq!(state.key(Key::Escape), FindingsAction::None, "the shell goes back");
}

#[test]
fn page_has_evidence_advice_and_the_answer() {
    let mut state = FindingsState::default();
    state.take(look());
    state.key(Key::Enter);
    let (lines, ..) = state.page.clone().unwrap_or_default().window(200, 50);
    let text = lines.join("\n");
    for wanted in [
        "LEAK",
        "evidence",
        "try       release `losses`",
        "held by   /home/me/train.py:31 step",
        "The answer.",
    ] {
        assert!(text.contains(wanted), "{wanted}: {text}");
    }
    assert_eq!(state.key(Key::Letter('p')), FindingsAction::Process);
    state.key(Key::Escape);
    assert!(state.page.is_none());
}

#[test]
fn chosen_finding_stays_chosen_when_a_newer_run_is_judged() {
    let mut state = FindingsState::default();
    state.take(look());
    state.key(Key::Down);
    let mut more = look();
    let finding = Finding {
        holder: Some(Holder::default()),
        ..Finding::new("x.y", "growth", Severity::Info, "new".to_owned())
    };
    let row = FindingRow {
        finding,
        program: None,
        pid: None,
        rank: None,
        memory: None,
        bytes: None,
        held_by: None,
        at_ns: None,
    };
    let newer = JudgedRecording {
        path: "/runs/newer".into(),
        name: "newer".into(),
        headline: vec![],
        rows: vec![row],
        problems: vec![],
    };
    more.judged.insert(0, Arc::new(newer));
    state.take(more);
    assert_eq!(state.chosen().map(|(_, row)| row.finding.title.as_str()), Some("killed: out of memory"));
}

#[test]
fn keys_of_an_empty_list_do_nothing() {
    let mut state = FindingsState::default();
    for key in [Key::Down, Key::End, Key::Enter, Key::Letter('s')] {
        state.key(key);
    }
    assert!(state.page.is_none() && state.chosen().is_none());
    assert_eq!(state.key(Key::Letter('a')), FindingsAction::All);
}
