//! The overview and the ranks as plain text, for a terminal that is none and for scripts that print.

use ratatui::backend::TestBackend;
use ratatui::layout::Rect;
use ratatui::{Frame, Terminal};
use stormlog_node::{JobRow, Overview};

use crate::once::text_of;
use crate::state::overview::OverviewState;
use crate::state::ranks::RanksState;
use crate::view::theme::Theme;
use crate::view::{overview, ranks};

/// Runs that have ended and are printed; a list of all is `stormlog runs`.
const MOST_ENDED: usize = 20;
/// Lines for the machine and its devices.
const MACHINE_LINES: usize = 60;

/// Living jobs and the newest one that has ended by rank, then the machine and its runs.
#[must_use]
pub fn top_text(mut overview: Overview, jobs: &[JobRow], columns: u16) -> String {
    let columns = columns.max(60);
    let mut text = String::new();
    let living = jobs.iter().filter(|job| job.is_living);
    let newest = jobs.iter().filter(|job| !job.is_living).take(1);
    for job in living.chain(newest).filter(|job| job.world_size > 1 || job.ranks.len() > 1) {
        let lines = job.ranks.len() + 4;
        let mut state = RanksState::default();
        state.take(vec![job.clone()]);
        text.push_str(&picture(columns, lines, |frame, area| {
            ranks::draw(frame, area, &mut state, &Theme::PLAIN);
        }));
        text.push('\n');
    }
    overview.ended.truncate(MOST_ENDED);
    let mut state = OverviewState::default();
    // Half of the screen is the machine's, and ends with a blank line where there is less to print.
    let lines = 2 * (overview.living.len() + overview.ended.len() + 2).max(MACHINE_LINES);
    state.take(overview);
    text.push_str(&picture(columns, lines, |frame, area| {
        overview::draw(frame, area, &mut state, &Theme::PLAIN);
    }));
    text
}

fn picture(columns: u16, lines: usize, draw: impl FnOnce(&mut Frame<'_>, Rect)) -> String {
    let lines = u16::try_from(lines).unwrap_or(u16::MAX);
    // A picture in memory cannot fail to be drawn.
    let Ok(mut terminal) = Terminal::new(TestBackend::new(columns, lines));
    let Ok(_) = terminal.draw(|frame| {
        let area = frame.area();
        draw(frame, area);
    });
    text_of(terminal.backend().buffer())
}
