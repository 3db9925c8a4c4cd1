//! The menu of actions, the form of the chosen one, the confirmation before a signal, and the jobs that run. Keys in, wishes out: what is done with
//! processes is in `act`.

use std::path::{Path, PathBuf};

use stormlog_model::text::format_whole_seconds;

use crate::state::action_list::{ACTIONS, ActionSpec, ActionTarget, EXPORT_BUNDLE, Start};
use crate::state::key::Key;
use crate::state::list::Cursor;
use crate::state::page::Page;

/// Longest text of a field.
const LONGEST: usize = 2000;

/// A command that is to be started: its words, and the file or directory it makes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Plan {
    pub(crate) words: Vec<String>,
    /// It is not started where this is there already.
    pub(crate) output: Option<PathBuf>,
}

/// A signal that can be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SignalName {
    Term,
    Int,
    Kill,
    Stop,
    Cont,
}

impl SignalName {
    const ALL: [SignalName; 5] =
        [SignalName::Term, SignalName::Int, SignalName::Kill, SignalName::Stop, SignalName::Cont];

    pub(crate) fn word(self) -> &'static str {
        match self {
            SignalName::Term => "TERM",
            SignalName::Int => "INT",
            SignalName::Kill => "KILL",
            SignalName::Stop => "STOP",
            SignalName::Cont => "CONT",
        }
    }

    pub(crate) fn of_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|name| name.word().eq_ignore_ascii_case(word))
    }
}

/// How far a job is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum JobState {
    Running,
    /// It was asked to end.
    Ending,
    Exited(i32),
    Signalled(i32),
    /// Why there is no process.
    NotStarted(String),
}

/// A job as it is listed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct JobRow {
    pub(crate) id: u64,
    pub(crate) line: String,
    pub(crate) state: JobState,
    pub(crate) seconds: u64,
    /// The end of what it printed.
    pub(crate) output: String,
}

impl JobRow {
    pub(crate) fn is_running(&self) -> bool {
        matches!(self.state, JobState::Running | JobState::Ending)
    }

    /// `running for 12 s`, `exited 0 after 3 s`.
    pub(crate) fn words(&self) -> String {
        let time = format_whole_seconds(self.seconds as f64);
        match &self.state {
            JobState::Running => format!("running for {time}"),
            JobState::Ending => "ending".to_owned(),
            JobState::Exited(code) => format!("exited {code} after {time}"),
            JobState::Signalled(signal) => format!("killed by signal {signal} after {time}"),
            JobState::NotStarted(reason) => format!("not started: {reason}"),
        }
    }
}

/// What a key asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ActionsWish {
    None,
    Used,
    Run(Plan),
    /// Look at the process first, then ask.
    Inspect(u32),
    Cancel(u64),
    /// The confirmation was answered with yes.
    Signal(SignalName),
    /// The confirmation was answered with no.
    Leave,
    Copy(String),
    Say(String),
}

/// Where the keys go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Focus {
    Menu,
    Form,
    Jobs,
    Output,
}

/// A confirmation that is answered with y or n.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Confirmation {
    Signal { signal: SignalName, lines: Vec<String> },
    Cancel { job: u64, lines: Vec<String> },
}

/// A value of a form, and whether the user typed it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Value {
    text: String,
    is_typed: bool,
}

/// The view without its processes.
#[derive(Debug)]
pub(crate) struct ActionsState {
    pub(crate) focus: Focus,
    pub(crate) menu: Cursor,
    pub(crate) field: usize,
    pub(crate) jobs: Vec<JobRow>,
    pub(crate) job: Cursor,
    pub(crate) page: Option<Page>,
    pub(crate) confirmation: Option<Confirmation>,
    /// The signal that waits for a look at its process.
    asked: Option<SignalName>,
    values: Vec<Vec<Value>>,
    root: String,
    path: Option<PathBuf>,
    pid: Option<u32>,
}

impl ActionsState {
    /// With the directory that new runs are made in.
    pub(crate) fn new(root: Option<&Path>) -> Self {
        let mut state = ActionsState {
            focus: Focus::Menu,
            menu: Cursor::default(),
            field: 0,
            jobs: Vec::new(),
            job: Cursor::default(),
            page: None,
            confirmation: None,
            asked: None,
            values: ACTIONS.iter().map(|action| vec![Value::default(); action.fields.len()]).collect(),
            root: root.map(|root| root.display().to_string()).unwrap_or_default(),
            path: None,
            pid: None,
        };
        state.fill();
        state
    }

    /// The fields are about this from now on; what the user typed stays.
    pub(crate) fn about(&mut self, path: Option<PathBuf>, pid: Option<u32>, is_bundle: bool) {
        (self.path, self.pid) = (path, pid);
        self.fill();
        if is_bundle && let Some(at) = ACTIONS.iter().position(|action| action.title == EXPORT_BUNDLE) {
            self.menu.at = at;
            // Another bundle than the one before.
            self.values[at].iter_mut().for_each(|value| value.is_typed = false);
            self.fill();
        }
    }

    fn fill(&mut self) {
        let path = self.path.as_ref().map(|path| path.display().to_string()).unwrap_or_default();
        let pid = self.pid.map(|pid| pid.to_string()).unwrap_or_default();
        let stem = self
            .path
            .as_ref()
            .and_then(|path| path.file_stem())
            .map(|stem| stem.to_string_lossy().into_owned());
        let stem =
            stem.or_else(|| self.pid.map(|pid| format!("pid{pid}"))).unwrap_or_else(|| "stormlog".to_owned());
        for (action, values) in ACTIONS.iter().zip(&mut self.values) {
            for (field, value) in action.fields.iter().zip(values).filter(|(_, value)| !value.is_typed) {
                value.text = match field.start {
                    Start::Empty => String::new(),
                    Start::Text(text) => text.to_owned(),
                    Start::Path => path.clone(),
                    Start::Pid => pid.clone(),
                    Start::PidOrPath if pid.is_empty() => path.clone(),
                    Start::PidOrPath => pid.clone(),
                    Start::Root => self.root.clone(),
                    Start::Output(ending) => format!("{stem}-{ending}"),
                };
            }
        }
    }

    pub(crate) fn action(&self) -> &'static ActionSpec {
        &ACTIONS[self.menu.at.min(ACTIONS.len() - 1)]
    }

    /// The texts of the form.
    pub(crate) fn texts(&self) -> Vec<&str> {
        self.values[self.menu.at].iter().map(|value| value.text.as_str()).collect()
    }

    pub(crate) fn deed(&self) -> Result<ActionTarget, String> {
        self.action().deed(&self.texts())
    }

    pub(crate) fn running(&self) -> usize {
        self.jobs.iter().filter(|job| job.is_running()).count()
    }

    pub(crate) fn chosen_job(&self) -> Option<&JobRow> {
        self.jobs.get(self.job.at)
    }

    /// The jobs as they are now; the chosen one stays chosen.
    pub(crate) fn take_jobs(&mut self, jobs: Vec<JobRow>) {
        let chosen =
            self.chosen_job().map(|job| job.id).filter(|_| matches!(self.focus, Focus::Jobs | Focus::Output));
        self.jobs = jobs;
        self.job.at = self.jobs.iter().position(|job| Some(job.id) == chosen).unwrap_or(0);
        let output = self.chosen_job().map(|job| job.output.clone()).unwrap_or_default();
        if let Some(page) = &mut self.page {
            page.set(&output);
        }
    }

    /// The process of the signal was looked at: asks, or gives what to say instead.
    pub(crate) fn take_target(&mut self, target: Result<(u32, &str, &str), String>) -> Option<String> {
        let signal = self.asked.take()?;
        match target {
            Ok((pid, user, command)) => {
                let lines = vec![
                    format!("Send SIG{} to process {pid}?", signal.word()),
                    format!("user     {user}"),
                    format!("command  {command}"),
                ];
                self.confirmation = Some(Confirmation::Signal { signal, lines });
                None
            }
            Err(problem) => Some(problem),
        }
    }

    /// Digits and letters are typed, or answer a confirmation.
    pub(crate) fn takes_all_keys(&self) -> bool {
        self.focus == Focus::Form || self.confirmation.is_some()
    }

    pub(crate) fn key(&mut self, key: Key) -> ActionsWish {
        if let Some(confirmation) = self.confirmation.take() {
            return self.answer(confirmation, key);
        }
        match self.focus {
            Focus::Menu => self.menu_key(key),
            Focus::Form => self.form_key(key),
            Focus::Jobs => self.jobs_key(key),
            Focus::Output => self.output_key(key),
        }
    }

    fn answer(&mut self, confirmation: Confirmation, key: Key) -> ActionsWish {
        match (key, confirmation) {
            (Key::Letter('y' | 'Y'), Confirmation::Signal { signal, .. }) => ActionsWish::Signal(signal),
            (Key::Letter('y' | 'Y'), Confirmation::Cancel { job, .. }) => ActionsWish::Cancel(job),
            (Key::Letter('n' | 'N' | 'q') | Key::Escape, _) => ActionsWish::Leave,
            // Any other key may be a slip.
            (_, confirmation) => {
                self.confirmation = Some(confirmation);
                ActionsWish::Used
            }
        }
    }

    fn menu_key(&mut self, key: Key) -> ActionsWish {
        match key {
            Key::Enter => return self.run(),
            Key::Letter('e' | 'l') | Key::Right => self.edit(0),
            Key::Letter('y') => {
                return match self.deed() {
                    Ok(deed) => ActionsWish::Copy(deed.line()),
                    Err(problem) => ActionsWish::Say(problem),
                };
            }
            Key::Letter('o') => return self.show_jobs(),
            key if self.menu.key(key, ACTIONS.len()) => {}
            _ => return ActionsWish::None,
        }
        ActionsWish::Used
    }

    fn show_jobs(&mut self) -> ActionsWish {
        if self.jobs.is_empty() {
            return ActionsWish::Say("no jobs yet: Enter runs the chosen action".to_owned());
        }
        self.focus = Focus::Jobs;
        ActionsWish::Used
    }

    fn run(&mut self) -> ActionsWish {
        match self.deed() {
            Ok(ActionTarget::Job(plan)) => ActionsWish::Run(plan),
            Ok(ActionTarget::Signal { pid, signal }) => {
                self.asked = Some(signal);
                ActionsWish::Inspect(pid)
            }
            Err(problem) => {
                let is_missing = |(field, text): (&_, &&str)| -> bool {
                    let field: &crate::state::action_list::FieldSpec = field;
                    field.is_required && text.trim().is_empty()
                };
                if let Some(at) = self.action().fields.iter().zip(&self.texts()).position(is_missing) {
                    self.edit(at);
                    return ActionsWish::Used;
                }
                ActionsWish::Say(problem)
            }
        }
    }

    fn edit(&mut self, field: usize) {
        (self.focus, self.field) = (Focus::Form, field);
    }

    fn form_key(&mut self, key: Key) -> ActionsWish {
        let count = self.action().fields.len();
        let field = &self.action().fields[self.field];
        let value = &mut self.values[self.menu.at][self.field];
        match key {
            Key::Enter | Key::Escape => self.focus = Focus::Menu,
            Key::Up | Key::BackTab => self.field = (self.field + count - 1) % count,
            Key::Down | Key::Tab => self.field = (self.field + 1) % count,
            Key::Left | Key::Right if !field.choices.is_empty() => {
                let at = field.choices.iter().position(|choice| *choice == value.text).unwrap_or(0);
                let step = if key == Key::Left { field.choices.len() - 1 } else { 1 };
                let text = field.choices[(at + step) % field.choices.len()].to_owned();
                *value = Value { text, is_typed: true };
            }
            Key::Backspace => {
                value.text.pop();
                value.is_typed = true;
            }
            Key::Letter(letter)
                if field.choices.is_empty() && !letter.is_control() && value.text.len() < LONGEST =>
            {
                value.text.push(letter);
                value.is_typed = true;
            }
            _ => {}
        }
        ActionsWish::Used
    }

    fn jobs_key(&mut self, key: Key) -> ActionsWish {
        match key {
            Key::Escape | Key::Letter('o') | Key::Left => self.focus = Focus::Menu,
            Key::Enter => {
                self.page = self.chosen_job().map(|job| {
                    let mut page = Page::new(&job.line, &job.output);
                    page.key(Key::End);
                    page
                });
                self.focus = Focus::Output;
            }
            Key::Letter('x') => self.ask_cancel(),
            key if self.job.key(key, self.jobs.len()) => {}
            _ => return ActionsWish::None,
        }
        ActionsWish::Used
    }

    fn output_key(&mut self, key: Key) -> ActionsWish {
        match key {
            Key::Escape | Key::Enter | Key::Backspace => (self.focus, self.page) = (Focus::Jobs, None),
            Key::Letter('x') => self.ask_cancel(),
            key => {
                if !self.page.as_mut().is_some_and(|page| page.key(key)) {
                    return ActionsWish::None;
                }
            }
        }
        ActionsWish::Used
    }

    fn ask_cancel(&mut self) {
        if let Some(job) = self.chosen_job().filter(|job| job.is_running()) {
            let lines = vec!["End this job? A recording ends as with Ctrl-C.".to_owned(), job.line.clone()];
            self.confirmation = Some(Confirmation::Cancel { job: job.id, lines });
        }
    }
}

#[cfg(test)]
#[path = "actions_tests.rs"]
mod tests;
