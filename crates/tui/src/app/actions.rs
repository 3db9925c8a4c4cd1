//! View 7: recordings, exports and signals, each as the command line that does it.

use std::ffi::OsString;
use std::path::Path;

use ratatui::Frame;
use ratatui::layout::Rect;
use stormlog_postmortem::bundle::BundleName;

use super::Subject;
use super::view::{KeyOutcome, View};
use crate::act::{MOST_RUNNING, Target, Worker};
use crate::error::TuiError;
use crate::state::action_list::ACTIONS;
use crate::state::actions::{ActionsState, ActionsWish, Focus};
use crate::state::key::{Button, Key, Mouse};
use crate::view::actions::draw;
use crate::view::theme::Theme;

/// The actions.
pub(crate) struct ActionsView {
    state: ActionsState,
    worker: Result<Worker, Option<TuiError>>,
    /// The process that the confirmation is about, held until it is answered.
    target: Option<Target>,
    /// A sentence about something that was asked before, for the next picture.
    message: Option<String>,
    menu: Rect,
    jobs: Rect,
}

impl ActionsView {
    /// With the directory that new runs are made in, and the interpreter that this code runs in.
    pub(crate) fn new(root: Option<&Path>, interpreter: Option<OsString>) -> Self {
        ActionsView {
            state: ActionsState::new(root.filter(|root| root.is_dir())),
            worker: Worker::start(interpreter).map_err(Some),
            target: None,
            message: None,
            menu: Rect::default(),
            jobs: Rect::default(),
        }
    }

    fn follow(&mut self, wish: ActionsWish) -> KeyOutcome {
        let Ok(worker) = &self.worker else { return KeyOutcome::Unused };
        match wish {
            ActionsWish::None => return KeyOutcome::Unused,
            ActionsWish::Used => {}
            ActionsWish::Run(_) if self.state.running() >= MOST_RUNNING => {
                return KeyOutcome::Say(format!(
                    "{MOST_RUNNING} jobs are running: wait for one, or end one with o and x"
                ));
            }
            ActionsWish::Run(plan) => worker.run(plan),
            ActionsWish::Inspect(pid) => {
                self.target = None;
                worker.inspect(pid);
            }
            ActionsWish::Cancel(job) => worker.cancel(job),
            ActionsWish::Signal(signal) => {
                let Some(target) = self.target.take() else { return KeyOutcome::Used };
                return KeyOutcome::Say(match target.signal(signal) {
                    Ok(()) => format!("SIG{} sent to process {}", signal.word(), target.pid),
                    Err(problem) => problem,
                });
            }
            ActionsWish::Leave => self.target = None,
            ActionsWish::Copy(line) => return KeyOutcome::Copy(line),
            ActionsWish::Say(text) => return KeyOutcome::Say(text),
        }
        KeyOutcome::Used
    }
}

impl View for ActionsView {
    fn key(&mut self, key: Key) -> KeyOutcome {
        self.message = None;
        let wish = self.state.key(key);
        self.follow(wish)
    }

    fn mouse(&mut self, mouse: Mouse) -> KeyOutcome {
        let place = (mouse.column, mouse.row).into();
        if self.state.confirmation.is_some() {
            return KeyOutcome::Used;
        }
        match mouse.button {
            Button::WheelUp | Button::WheelDown if self.state.focus == Focus::Output => {
                if let Some(page) = &mut self.state.page {
                    page.wheel(mouse.button == Button::WheelDown);
                }
            }
            Button::WheelUp if self.state.focus != Focus::Form => drop(self.state.key(Key::Up)),
            Button::WheelDown if self.state.focus != Focus::Form => drop(self.state.key(Key::Down)),
            Button::Press if self.menu.contains(place) => {
                let line = self.state.menu.at_line(usize::from(mouse.row - self.menu.y));
                if line < ACTIONS.len() {
                    (self.state.menu.at, self.state.focus, self.state.field) = (line, Focus::Menu, 0);
                }
            }
            Button::Press if self.jobs.contains(place) => {
                let line = self.state.job.at_line(usize::from(mouse.row - self.jobs.y));
                if line < self.state.jobs.len() {
                    (self.state.job.at, self.state.focus) = (line, Focus::Jobs);
                }
            }
            _ => return KeyOutcome::Unused,
        }
        KeyOutcome::Used
    }

    fn news(&mut self, _is_paused: bool) -> Result<bool, TuiError> {
        let worker = match &mut self.worker {
            Ok(worker) => worker,
            Err(error) => return error.take().map_or(Ok(false), Err),
        };
        // All of it is what the user asked for.
        let look = worker.news();
        let is_new = look.jobs.is_some() || look.target.is_some();
        if let Some(jobs) = look.jobs {
            self.state.take_jobs(jobs);
        }
        match look.target {
            Some(Ok(target)) => {
                self.message = self.state.take_target(Ok((target.pid, &target.user, &target.command)));
                self.target = self.state.confirmation.is_some().then_some(target);
            }
            Some(Err(problem)) => self.message = self.state.take_target(Err(problem)),
            None => {}
        }
        Ok(is_new)
    }

    fn draw(&mut self, frame: &mut Frame<'_>, area: Rect, theme: &Theme) {
        (self.menu, self.jobs) = draw(frame, area, &mut self.state, theme);
        if let Some(message) = &self.message {
            let text = crate::text::clean(message).into_owned();
            crate::view::frame::popup(
                frame,
                "not sent",
                vec![ratatui::text::Line::from(format!(" {text} "))],
            );
        }
    }

    fn keys(&self) -> Vec<(&'static str, &'static str)> {
        match self.state.focus {
            Focus::Menu => vec![("Enter", "run"), ("e", "edit"), ("y", "copy"), ("o", "jobs")],
            Focus::Form => vec![("↑ ↓", "field"), ("Enter Esc", "done")],
            Focus::Jobs => vec![("Enter", "output"), ("x", "end"), ("Esc", "menu")],
            Focus::Output => vec![("x", "end"), ("Esc", "jobs")],
        }
    }

    fn help(&self) -> Vec<(&'static str, &'static str)> {
        vec![
            ("e  →", "edit the fields; ← → go through fixed choices"),
            ("y", "copy the command line to the clipboard of the terminal"),
            ("o", "the jobs; Enter shows what one printed, x ends it"),
        ]
    }

    fn takes_all_keys(&self) -> bool {
        self.state.takes_all_keys()
    }

    fn open(&mut self, subject: &Subject) {
        let name = subject.path.as_ref().and_then(|path| path.file_name()).and_then(|name| name.to_str());
        let is_bundle = name.and_then(BundleName::parse).is_some();
        self.state.about(subject.path.clone(), subject.pid, is_bundle);
    }
}
