//! View 2: one process, living or dead. Three threads read for it: what was recorded, what happened, and the source of a line.

use std::time::Duration;

use ratatui::Frame;
use ratatui::layout::Rect;
use stormlog_model::stacks::Frame as CodeFrame;
use stormlog_postmortem::bundle::BundleName;

use super::Subject;
use super::view::{KeyOutcome, View};
use crate::error::TuiError;
use crate::read::answer::{AnswerAsk, AnswerReader};
use crate::read::source::{Excerpt, excerpt};
use crate::read::{LiveTarget, Poller, RecordingFollower};
use crate::state::entry::Entry;
use crate::state::key::{Key, Mouse};
use crate::state::process::ProcessState;
use crate::state::reading::{Reading, Wish};
use crate::text::clean;
use crate::view::local_time::LocalTime;
use crate::view::process;
use crate::view::theme::Theme;

/// Between two looks at a living process.
const EVERY: Duration = Duration::from_secs(1);
/// What does not change is read when it is requested.
const ON_REQUEST: Duration = Duration::from_secs(3600);

const KEYS: &[(&str, &str)] = &[
    ("← →", "time"),
    ("[ ]", "zoom"),
    ("f", "flame"),
    ("T", "tree"),
    ("m", "memory"),
    ("/", "filter"),
    ("Enter", "source"),
    ("p", "process"),
    ("End", "now"),
];
const HELP: &[(&str, &str)] = &[
    ("Shift ← →", "larger steps in time; Ctrl, H and L too; a click or a drag on the lanes"),
    ("0  Home End", "show all; jump to start; jump to end and follow"),
    ("n  N", "the next and the previous alert"),
    ("o t a  s", "order by own bytes, total bytes, allocations; the next column"),
    ("y", "copy the file and line of the chosen row"),
    ("<  >", "one thread at a time, or all"),
    ("Enter Bksp", "in the flame graph: zoom into a frame; zoom out"),
    ("h", "in the tree and the flame graph: hide import frames; library frames too"),
];

/// What is asked of the reader.
#[derive(Debug, Clone, PartialEq)]
struct Ask {
    target: LiveTarget,
    wish: Wish,
}

/// What it answers, and about what.
struct Look {
    target: LiveTarget,
    found: Result<Reading, String>,
}

/// The view. Its threads begin with the first process that is opened.
pub(crate) struct ProcessView {
    state: ProcessState,
    target: Option<LiveTarget>,
    readers: Option<Readers>,
    /// Why they could not begin.
    failed: Option<TuiError>,
    excerpt: Option<Excerpt>,
    is_shown: bool,
    time: LocalTime,
}

struct Readers {
    looks: Poller<Ask, Look>,
    answers: Poller<Option<AnswerAsk>, Option<(AnswerAsk, Vec<String>)>>,
    sources: Poller<Option<CodeFrame>, Option<Excerpt>>,
}

impl ProcessView {
    pub(crate) fn new() -> Self {
        ProcessView {
            state: ProcessState::new(String::new(), None),
            target: None,
            readers: None,
            failed: None,
            excerpt: None,
            is_shown: false,
            time: LocalTime::here(),
        }
    }

    fn start(ask: Ask) -> Result<Readers, TuiError> {
        let mut open: Option<(LiveTarget, RecordingFollower)> = None;
        let look = move |ask: &Ask| {
            let found = look(&mut open, ask);
            let is_behind = found.as_ref().is_ok_and(Reading::is_behind);
            (Look { target: ask.target.clone(), found }, is_behind)
        };
        let mut reader = AnswerReader::default();
        let answers = move |ask: &Option<AnswerAsk>| (ask.as_ref().map(|ask| reader.answer(ask)), false);
        let sources = |frame: &Option<CodeFrame>| (frame.as_ref().map(excerpt), false);
        Ok(Readers {
            looks: Poller::start("stormlog-process", EVERY, ask, look)?,
            answers: Poller::start("stormlog-answer", ON_REQUEST, None, answers)?,
            sources: Poller::start("stormlog-source", ON_REQUEST, None, sources)?,
        })
    }

    /// Asks for what the state wants to know.
    fn ask(&mut self) {
        let (Some(target), Some(readers)) = (&self.target, &mut self.readers) else { return };
        readers.looks.ask(Ask { target: target.clone(), wish: self.state.wish() });
        readers.sources.ask(self.state.source_of().cloned());
        readers.answers.ask(self.state.process().and_then(|process| {
            let (path, ended) = (self.state.live.reading.path.clone()?, process.ended.clone()?);
            Some(AnswerAsk { path, pid: process.pid, ended })
        }));
    }

    fn show_readers(&mut self) {
        if let Some(readers) = &mut self.readers {
            readers.looks.set_shown(self.is_shown);
            readers.answers.set_shown(self.is_shown);
            readers.sources.set_shown(self.is_shown);
        }
    }
}

/// Looks at a target, which is opened first where it is another one.
fn look(open: &mut Option<(LiveTarget, RecordingFollower)>, ask: &Ask) -> Result<Reading, String> {
    if open.as_ref().is_none_or(|(target, _)| *target != ask.target) {
        *open = None;
        let follower = RecordingFollower::open(&ask.target).map_err(|error| error.to_string())?;
        *open = Some((ask.target.clone(), follower));
    }
    match open {
        Some((_, follower)) => Ok(follower.look(ask.wish)),
        None => Err(String::new()),
    }
}

/// What a subject is to this view; `None` where it is another view's.
fn target_of(subject: &Subject) -> Option<LiveTarget> {
    let Some(path) = &subject.path else { return subject.pid.map(LiveTarget::Process) };
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let is_snapshot = matches!(path.extension().and_then(|end| end.to_str()), Some("pickle" | "pkl"));
    (!is_snapshot && BundleName::parse(name).is_none()).then(|| LiveTarget::Path(path.clone()))
}

impl View for ProcessView {
    fn key(&mut self, key: Key) -> KeyOutcome {
        if key == Key::Letter('y') && !self.state.takes_all_keys() {
            let place = self.state.chosen().map(|frame| clean(&frame.place()).into_owned());
            return place.map_or(KeyOutcome::Used, KeyOutcome::Copy);
        }
        let is_used = self.state.key(key);
        self.ask();
        if is_used { KeyOutcome::Used } else { KeyOutcome::Unused }
    }

    fn mouse(&mut self, mouse: Mouse) -> KeyOutcome {
        self.state.mouse(mouse);
        self.ask();
        KeyOutcome::Used
    }

    fn news(&mut self, is_paused: bool) -> Result<bool, TuiError> {
        if let Some(error) = self.failed.take() {
            return Err(error);
        }
        let Some(readers) = &self.readers else { return Ok(false) };
        let mut is_new = false;
        let found = readers.looks.news()?.filter(|look| Some(&look.target) == self.target.as_ref());
        match found.map(|look| look.found) {
            Some(Ok(reading)) => is_new |= self.state.update(reading, is_paused),
            Some(Err(sentence)) => {
                self.state.trouble = Some(sentence);
                is_new = true;
            }
            None => {}
        }
        if let Some(Some((ask, lines))) = readers.answers.news()? {
            let is_its = self.state.process().is_some_and(|process| process.pid == ask.pid);
            if is_its {
                self.state.answer = lines;
                is_new = true;
            }
        }
        if let Some(excerpt) = readers.sources.news()? {
            self.excerpt = excerpt;
            is_new = true;
        }
        if is_new {
            self.ask();
        }
        Ok(is_new)
    }

    fn draw(&mut self, frame: &mut Frame<'_>, area: Rect, theme: &Theme) {
        let is_open = self.state.source_of().is_some();
        let excerpt = self.excerpt.as_ref().filter(|_| is_open);
        process::draw(frame, area, &mut self.state, excerpt, &self.time, theme);
    }

    fn keys(&self) -> Vec<(&'static str, &'static str)> {
        KEYS.to_vec()
    }

    fn help(&self) -> Vec<(&'static str, &'static str)> {
        HELP.to_vec()
    }

    fn entry(&self) -> Option<&Entry> {
        self.state.entry()
    }

    fn takes_all_keys(&self) -> bool {
        self.state.takes_all_keys()
    }

    fn set_shown(&mut self, is_shown: bool) {
        self.is_shown = is_shown;
        self.show_readers();
    }

    fn open(&mut self, subject: &Subject) {
        let Some(target) = target_of(subject) else { return };
        let title = match &target {
            LiveTarget::Path(path) => path.display().to_string(),
            LiveTarget::Process(pid) => format!("process {pid}"),
        };
        if self.target.as_ref() == Some(&target) && self.state.wish().pid == subject.pid {
            self.state.show_moment(subject.at_ns);
            return self.ask();
        }
        self.state = ProcessState::new(title, subject.pid);
        self.state.show_moment(subject.at_ns);
        self.excerpt = None;
        self.target = Some(target.clone());
        if self.readers.is_none() {
            match ProcessView::start(Ask { target, wish: self.state.wish() }) {
                Ok(readers) => self.readers = Some(readers),
                Err(error) => self.failed = Some(error),
            }
            self.show_readers();
        }
        self.ask();
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
mod tests {
    use std::path::PathBuf;

    use super::*;

    fn corpus(name: &str) -> PathBuf {
        PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests/corpus/recordings").join(name)
    }

    fn opened(subject: &Subject) -> ProcessView {
        let mut view = ProcessView::new();
        view.set_shown(true);
        view.open(subject);
        view
    }

    fn until(view: &mut ProcessView, is_so: impl Fn(&ProcessState) -> bool) {
        while !is_so(&view.state) {
            view.news(false).unwrap();
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn dead_run_opens_with_lanes_answer_and_the_lines_of_any_moment() {
        let mut view = opened(&Subject::path(corpus("leak_after_imports")));
        until(&mut view, |state| state.heap().is_some_and(|heap| !heap.lines.is_empty()));
        let names: Vec<String> = view
            .state
            .counters()
            .iter()
            .map(|(lane, line)| format!("{} {}", lane.memory, line.name))
            .collect();
        assert_eq!(names[..2], ["host RSS", "host heap"], "{names:?}");
        let end = view.state.heap().map(|heap| heap.bytes).unwrap();
        until(&mut view, |state| !state.answer.is_empty());
        assert!(view.state.answer[0].contains("exited 0"), "{:#?}", view.state.answer);
        view.state.plot.width = 100;
        for _ in 0..5 {
            view.key(Key::FarLeft);
        }
        until(&mut view, |state| {
            state.is_current() && state.heap().is_some_and(|heap| heap.moment_ns.is_some())
        });
        let (axis, heap) = (&view.state.axis, view.state.heap().unwrap());
        let (cursor, moment) = (axis.cursor().unwrap(), heap.moment_ns.unwrap() / 1_000_000);
        assert!(cursor.abs_diff(moment) < (axis.whole().1 - axis.whole().0) / 50, "{cursor} and {moment}");
        let own: u64 = heap.lines.iter().map(|line| line.own_bytes).sum();
        assert_eq!((heap.bytes, &heap.past_trouble), (own, &None));
        assert_ne!(heap.bytes, end, "another moment");
        let copied = view.key(Key::Letter('y'));
        assert!(matches!(&copied, KeyOutcome::Copy(place) if place.contains(':')), "{copied:?}");
        view.key(Key::Letter('f'));
        until(
            &mut view,
            |state| matches!(&state.pane, crate::state::process::Pane::Flame(Some(flame)) if !flame.is_empty()),
        );
    }

    #[test]
    fn telemetry_of_an_older_version_opens_with_its_lanes() {
        let golden = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/peer-0.4.3");
        let mut view = opened(&Subject::path(golden.join("v3.jsonl")));
        until(&mut view, |state| state.has_looked());
        assert!(view.state.process().is_none(), "no sample is in it");
        view.open(&Subject::path(golden.join("cpu_tracker.json")));
        until(&mut view, |state| !state.counters().is_empty());
        let process = view.state.process().unwrap();
        assert!(process.is_recorded && process.ended.is_some() && process.heap.is_none());
        assert!(view.state.live.reading.processes[0].name.contains("cpu_tracker.json"));
    }

    #[test]
    fn process_that_is_not_recorded_is_looked_at() {
        let mut view = opened(&Subject::pid(std::process::id()));
        until(&mut view, |state| state.counters().iter().any(|(_, line)| line.name == "RSS"));
        let process = view.state.process().unwrap();
        assert!(!process.is_recorded && process.ended.is_none());
    }

    #[test]
    fn subjects_of_other_views_leave_it_alone() {
        let mut view = opened(&Subject::path(corpus("nowhere")));
        until(&mut view, |state| state.trouble.is_some());
        let before = view.target.clone();
        view.open(&Subject::path("/run/rank0-pid7/snapshot.pickle".into()));
        view.open(&Subject::default());
        assert_eq!(view.target, before);
    }
}
