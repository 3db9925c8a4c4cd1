use super::*;
use crate::testing::jobs;

fn typed(state: &mut ActionsState, text: &str) {
    for letter in text.chars() {
        assert_eq!(state.key(Key::Letter(letter)), ActionsWish::Used);
    }
}

fn choose(state: &mut ActionsState, title: &str) {
    state.menu.at = ACTIONS.iter().position(|action| action.title == title).unwrap_or_default();
}

fn words(text: &str) -> Vec<String> {
    text.split(' ').map(str::to_owned).collect()
}

#[test]
fn command_is_typed_shown_copied_and_run() {
    let mut state = ActionsState::new(Some(Path::new("runs")));
    assert_eq!(state.key(Key::Enter), ActionsWish::Used, "the command is missing: its field opens");
    assert!(state.focus == Focus::Form && state.takes_all_keys());
    typed(&mut state, "python3 q.py 7");
    state.key(Key::Down);
    assert_eq!(state.field, 1);
    state.key(Key::Enter);
    assert_eq!(state.focus, Focus::Menu);
    let line = "stormlog run --dir runs -- python3 q.py 7";
    assert_eq!(state.key(Key::Letter('y')), ActionsWish::Copy(line.to_owned()));
    assert_eq!(state.key(Key::Enter), ActionsWish::Run(Plan { words: words(line), output: None }));
}

#[test]
fn fields_follow_the_subject_until_they_are_typed() {
    let mut state = ActionsState::new(None);
    state.about(Some("/runs/a.b".into()), Some(7), false);
    choose(&mut state, "Report page");
    assert_eq!(state.texts(), ["/runs/a.b", "a-report.html"]);
    state.edit(1);
    state.key(Key::Backspace);
    state.about(Some("/runs/c".into()), None, false);
    assert_eq!(state.texts(), ["/runs/c", "a-report.htm"]);
    choose(&mut state, "Why");
    assert_eq!(state.texts(), ["/runs/c"]);
    state.about(Some("/runs/oom_dump".into()), None, true);
    assert_eq!(
        (state.action().title, state.texts()),
        ("Export a bundle", vec!["/runs/oom_dump", "oom_dump-bundle.json"])
    );
}

#[test]
fn signal_is_asked_with_pid_user_and_command_and_sent_on_yes_only() {
    let mut state = ActionsState::new(None);
    state.about(None, Some(7), false);
    choose(&mut state, "Signal");
    state.edit(1);
    state.key(Key::Right);
    state.key(Key::Right);
    typed(&mut state, "x");
    state.key(Key::Enter);
    assert_eq!(state.texts(), ["7", "KILL"], "a choice is not typed");
    assert_eq!(state.key(Key::Enter), ActionsWish::Inspect(7));
    assert_eq!(state.take_target(Ok((7, "me", "python3 train.py"))), None);
    let Some(Confirmation::Signal { lines, .. }) = &state.confirmation else {
        panic!("{:?}", state.confirmation)
    };
    assert_eq!(lines.join("\n"), "Send SIGKILL to process 7?\nuser     me\ncommand  python3 train.py");
    for key in [Key::Enter, Key::Letter('x'), Key::Tab] {
        assert_eq!(state.key(key), ActionsWish::Used);
        assert!(state.confirmation.is_some(), "{key:?} is not an answer");
    }
    assert_eq!(state.key(Key::Letter('y')), ActionsWish::Signal(SignalName::Kill));
    assert!(state.confirmation.is_none());
    state.key(Key::Enter);
    state.take_target(Ok((7, "me", "python3 train.py")));
    assert_eq!(state.key(Key::Escape), ActionsWish::Leave);
    state.key(Key::Enter);
    assert_eq!(
        state.take_target(Err("there is no process 7".into())).as_deref(),
        Some("there is no process 7")
    );
    assert!(state.confirmation.is_none());
    assert_eq!(state.take_target(Ok((7, "", ""))), None, "nothing was asked");
    assert!(state.confirmation.is_none());
}

#[test]
fn jobs_are_chosen_read_and_ended_after_a_question() {
    let mut state = ActionsState::new(None);
    assert!(matches!(state.key(Key::Letter('o')), ActionsWish::Say(_)));
    state.take_jobs(jobs());
    assert_eq!(state.running(), 1);
    state.key(Key::Letter('o'));
    state.key(Key::Enter);
    let lines = state.page.as_mut().map(|page| page.window(80, 9).0).unwrap_or_default();
    assert_eq!(lines, ["step 1", "step 2 ␛[2J"]);
    state.key(Key::Letter('x'));
    assert_eq!(state.key(Key::Letter('y')), ActionsWish::Cancel(2));
    state.key(Key::Escape);
    state.key(Key::Down);
    state.key(Key::Letter('x'));
    assert!(state.confirmation.is_none(), "it has ended");
    let mut more = jobs();
    more.insert(0, JobRow { id: 3, ..more[0].clone() });
    state.take_jobs(more);
    assert_eq!(state.chosen_job().map(|job| job.id), Some(1), "the chosen one stays chosen");
    assert_eq!(state.key(Key::Escape), ActionsWish::Used);
    assert_eq!(state.key(Key::Escape), ActionsWish::None);
}

#[test]
fn ends_of_jobs_are_in_words() {
    let row = |state| JobRow { state, ..jobs()[0].clone() }.words();
    assert_eq!(row(JobState::Exited(3)), "exited 3 after 12 s");
    assert_eq!(row(JobState::Signalled(9)), "killed by signal 9 after 12 s");
    assert_eq!(row(JobState::NotStarted("no file".into())), "not started: no file");
}
