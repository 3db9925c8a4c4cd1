//! The two screens: a state, where its source text comes from, and how it is drawn.

use std::time::Duration;

use ratatui::Frame;
use stormlog_model::stacks::StackProfile;

use crate::error::TuiError;
use crate::read::source::Sources;
use crate::read::{Poller, RecordingFollower};
use crate::show::Show;
use crate::state::key::{Flow, Key};
use crate::state::live::LiveState;
use crate::state::reading::{Reading, Wish};
use crate::state::tree::TreeState;
use crate::view;
use crate::view::theme::Theme;

/// A call tree.
pub(crate) struct TreeScreen {
    state: TreeState,
    sources: Sources,
}

impl TreeScreen {
    pub(crate) fn new(held: StackProfile, title: &str) -> Self {
        TreeScreen { state: TreeState::new(held, title), sources: Sources::default() }
    }
}

impl Show for TreeScreen {
    fn draw(&mut self, frame: &mut Frame<'_>, theme: &Theme) {
        let TreeScreen { state, sources } = self;
        let excerpt = state.shows_source.then(|| sources.excerpt(state.chosen()));
        view::tree::draw(frame, state, excerpt, theme);
    }

    fn key(&mut self, key: Key) -> Flow {
        self.state.key(key)
    }

    fn news(&mut self) -> Result<bool, TuiError> {
        Ok(false)
    }
}

/// A program while it runs.
pub(crate) struct LiveScreen {
    state: LiveState,
    sources: Sources,
    poller: Poller<Wish, Reading>,
}

/// Between two looks.
const EVERY: Duration = Duration::from_secs(1);

impl LiveScreen {
    pub(crate) fn start(mut follower: RecordingFollower, wish: Wish) -> Result<Self, TuiError> {
        let state = LiveState::of(Reading { title: follower.title(), ..Reading::default() }, wish);
        let look = move |wish: &Wish| {
            let reading = follower.look(*wish);
            let is_behind = reading.is_behind();
            (reading, is_behind)
        };
        let mut poller = Poller::start("stormlog-live", EVERY, wish, look)?;
        poller.set_shown(true);
        Ok(LiveScreen { state, sources: Sources::default(), poller })
    }
}

impl Show for LiveScreen {
    fn draw(&mut self, frame: &mut Frame<'_>, theme: &Theme) {
        let LiveScreen { state, sources, .. } = self;
        let excerpt = state.shows_source.then(|| sources.excerpt(state.chosen()));
        view::live::draw(frame, state, excerpt, theme, true);
    }

    fn key(&mut self, key: Key) -> Flow {
        let flow = self.state.key(key);
        self.poller.ask(self.state.wish());
        flow
    }

    fn news(&mut self) -> Result<bool, TuiError> {
        Ok(self.poller.news()?.is_some_and(|reading| self.state.update(reading)))
    }
}
