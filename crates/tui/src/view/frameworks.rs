//! The allocators of the frameworks: sources above or left, the chosen one below or right; a page over all of it.

use std::path::Path;

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::text::Line;
use ratatui::widgets::Paragraph;
use stormlog_model::format_bytes;
use stormlog_model::text::grouped;

use crate::read::frameworks::{Content, Detail};
use crate::state::frameworks::{FrameworksState, Order, Pane};
use crate::text::{clean, fit};
use crate::view::framework_tables::{age, bar, content_lines, holder_lines, snapshot_lines};
use crate::view::listing::{self, Column, Headers};
use crate::view::page;
use crate::view::theme::Theme;

/// From this width on the list is beside the chosen source.
const SIDE_BY_SIDE: u16 = 160;
/// From this width on the holders of a snapshot are beside its pools.
const TWO_COLUMNS: u16 = 170;
/// The columns of the list, as [`Order::ALL`] has them.
const COLUMNS: [Column; 4] = [
    Column::new("AGE", 12, 6).right(),
    Column::new("KIND", 9, 7),
    Column::new("SIZE", 10, 5).right(),
    Column::new("SOURCE", 20, 9).rest().end(),
];

/// Draws the view; gives where the list and its headers are.
pub(crate) fn draw(
    frame: &mut Frame<'_>,
    area: Rect,
    state: &mut FrameworksState,
    theme: &Theme,
) -> (Headers, Rect) {
    if state.pane != Pane::List {
        draw_page(frame, area, state, theme);
        return (Headers::new(), Rect::default());
    }
    let (list, detail) = if area.width >= SIDE_BY_SIDE {
        let parts = [Constraint::Percentage(36), Constraint::Length(2), Constraint::Min(1)];
        let [list, _, detail] = Layout::horizontal(parts).areas(area);
        (list, detail)
    } else {
        let rows = u16::try_from(state.sources().len()).unwrap_or(u16::MAX).max(1);
        let high = rows.saturating_add(2).min(area.height / 3).max(4);
        let [list, detail] = Layout::vertical([Constraint::Length(high), Constraint::Min(0)]).areas(area);
        (list, detail)
    };
    let found = draw_list(frame, list, state, theme);
    draw_detail(frame, detail, state, theme);
    found
}

fn draw_detail(frame: &mut Frame<'_>, area: Rect, state: &FrameworksState, theme: &Theme) {
    let [_, area] = Layout::vertical([Constraint::Length(1), Constraint::Min(0)]).areas(area);
    let columns = usize::from(area.width);
    let lines = match state.detail() {
        None if state.chosen().is_some() => vec![Line::styled("reading…", theme.faint())],
        None => Vec::new(),
        Some(Detail { content: Content::Snapshot { report, .. }, .. }) if area.width >= TWO_COLUMNS => {
            let parts = [Constraint::Length(100), Constraint::Length(2), Constraint::Min(1)];
            let [left, _, right] = Layout::horizontal(parts).areas(area);
            let holders = holder_lines(report, usize::from(right.width), theme);
            frame.render_widget(Paragraph::new(holders), right);
            let lines = snapshot_lines(report, usize::from(left.width), theme);
            return frame.render_widget(Paragraph::new(lines), left);
        }
        Some(detail) => content_lines(detail, state.at_ns, columns, theme),
    };
    frame.render_widget(Paragraph::new(lines), area);
}

fn draw_list(
    frame: &mut Frame<'_>,
    area: Rect,
    state: &mut FrameworksState,
    theme: &Theme,
) -> (Headers, Rect) {
    let [title, list] = Layout::vertical([Constraint::Length(1), Constraint::Min(0)]).areas(area);
    frame.render_widget(Paragraph::new(title_line(state, title.width, theme)), title);
    if state.sources().len() == 0 {
        frame.render_widget(Paragraph::new(Line::styled(empty_word(state), theme.faint())), list);
        return (Headers::new(), Rect::default());
    }
    let rows: Vec<_> = state.sources().cloned().collect();
    let shown = &*state;
    let row = |number: usize| {
        let source = &rows[number];
        let texts = [
            age(shown.at_ns, source.modified_ns),
            source.kind.word().to_owned(),
            source.bytes.map_or_else(|| "–".to_owned(), format_bytes),
            clean(&shown_name(shown, &source.path)).into_owned(),
        ];
        texts.map(|text| (text, Default::default())).into()
    };
    let sorted = Order::ALL.iter().position(|order| *order == shown.order).unwrap_or(0);
    let mut cursor = shown.cursor;
    let headers = listing::draw(frame, list, &COLUMNS, sorted, (&mut cursor, rows.len()), row, theme);
    state.cursor = cursor;
    (headers, list)
}

fn title_line(state: &FrameworksState, columns: u16, theme: &Theme) -> Line<'static> {
    let count = state.count();
    let shown = match state.filter.text.is_empty() {
        true => String::new(),
        false => format!("{} of ", grouped(state.sources().len() as u64)),
    };
    let what = format!("{shown}{} source{}", grouped(count as u64), if count == 1 { "" } else { "s" });
    let of = state.subject().map(|path| format!(" of {}", name_of(path)));
    let filter = match state.filter.text.as_str() {
        "" => String::new(),
        text => format!("  · filter {text}"),
    };
    let title = format!("{what}{}{filter}", of.unwrap_or_default());
    Line::styled(fit(&clean(&title), usize::from(columns)).into_owned(), theme.title())
}

fn empty_word(state: &FrameworksState) -> &'static str {
    match (state.is_read, state.filter.text.is_empty()) {
        (false, _) => "reading…",
        (true, false) => "nothing matches the filter; Esc clears it",
        (true, true) => "no allocator snapshot and no telemetry here",
    }
}

/// The path below the directory that was searched.
fn shown_name(state: &FrameworksState, path: &Path) -> String {
    let tops = state.subject().into_iter().chain(state.roots().iter().map(std::path::PathBuf::as_path));
    let below = tops.filter_map(|top| path.strip_prefix(top).ok()).find(|rest| !rest.as_os_str().is_empty());
    below.map_or_else(|| name_of(path), |rest| rest.to_string_lossy().into_owned())
}

fn name_of(path: &Path) -> String {
    path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned()
}

fn draw_page(frame: &mut Frame<'_>, area: Rect, state: &mut FrameworksState, theme: &Theme) {
    let name = state.chosen().map(name_of).unwrap_or_default();
    let (title, text) = match (state.pane, state.replay(), state.detail()) {
        (Pane::Replay, Some(replay), _) => {
            let share = replay.done as f64 / replay.total.max(1) as f64;
            let progress = format!(": {} of {} settings {}", replay.done, replay.total, bar(share, 14));
            let progress = if replay.done < replay.total { progress.as_str() } else { "" };
            (format!("replay of {name}{progress}"), replay.page.join("\n"))
        }
        (Pane::Replay, None, _) => (format!("replay of {name}"), "reading…".to_owned()),
        (_, _, Some(Detail { content: Content::Snapshot { page, .. }, .. })) => (name, page.join("\n")),
        (_, _, Some(detail)) => {
            let lines = content_lines(detail, state.at_ns, usize::from(area.width), theme);
            (name, lines.iter().map(Line::to_string).collect::<Vec<_>>().join("\n"))
        }
        (_, _, None) => (name, "reading…".to_owned()),
    };
    state.page.title = clean(&title).into_owned();
    state.page.set(&text);
    page::draw(frame, area, &mut state.page, theme);
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;
    use std::sync::Arc;

    use ratatui::Terminal;
    use ratatui::backend::TestBackend;
    use stormlog_catalog::frameworks::{
        FrameworkDevice, FrameworkSource, FrameworkSourceKind, FrameworkTelemetry, PhaseRow,
    };
    use stormlog_store::Source;

    use super::*;
    use crate::read::frameworks::{FrameworksAsk, FrameworksLook, FrameworksReader};
    use crate::state::frameworks::Step;
    use crate::state::key::Key;

    const SIZES: [(u16, u16); 3] = [(80, 24), (120, 40), (300, 60)];
    const HOUR: u64 = 3_600_000_000_000;

    fn picture(size: (u16, u16), state: &mut FrameworksState) -> String {
        // What the shell leaves of a screen of that size.
        let mut terminal = Terminal::new(TestBackend::new(size.0, size.1.saturating_sub(2).max(1))).unwrap();
        terminal
            .draw(|frame| {
                draw(frame, frame.area(), state, &Theme::PLAIN);
            })
            .unwrap();
        terminal.backend().to_string()
    }

    /// Three sources of fixed ages; `chosen` is read.
    fn state(chosen: &str, replays: bool) -> FrameworksState {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../torch/tests/data");
        let source = |name: &str, age: u64, kind| FrameworkSource {
            path: root.join(name),
            kind,
            modified_ns: 1000 * HOUR - age,
            bytes: Some(7000 + age / HOUR),
        };
        let telemetry = FrameworkSourceKind::Telemetry(Source::Json(root.join("track.jsonl")));
        let sources = vec![
            source("gpt-oom.pickle.gz", HOUR / 40, FrameworkSourceKind::Snapshot),
            source("streams-s11-default.pickle.gz", HOUR * 3, FrameworkSourceKind::Snapshot),
            source("evil\u{1b}[2Jtrack.jsonl", HOUR * 60, telemetry),
        ];
        let path = root.join(chosen);
        let mut reader = FrameworksReader::default();
        let ask = FrameworksAsk { paths: vec![path.clone()], chosen: Some(path), replays };
        let mut look = reader.look(&ask);
        while look.1 {
            look = reader.look(&ask);
        }
        let look = FrameworksLook { at_ns: 1000 * HOUR, sources: Arc::new(sources), ..look.0 };
        let mut state = FrameworksState::new(vec![root]);
        state.take(FrameworksLook { detail: None, replay: None, ..look.clone() });
        let place = state.sources().position(|source| source.path.ends_with(chosen)).unwrap();
        (0..place).for_each(|_| {
            state.key(Key::Down);
        });
        state.take(look);
        state
    }

    #[test]
    fn a_snapshot_below_the_list() {
        for size in SIZES {
            let mut state = state("streams-s11-default.pickle.gz", false);
            insta::assert_snapshot!(format!("frameworks_{}x{}", size.0, size.1), picture(size, &mut state));
        }
    }

    #[test]
    fn a_failed_request_and_its_page() {
        let mut state = state("gpt-oom.pickle.gz", false);
        insta::assert_snapshot!("frameworks_oom_120x40", picture((120, 40), &mut state));
        state.key(Key::Enter);
        let page = picture((80, 24), &mut state);
        assert!(page.contains("  verdict "), "{page}");
        state.key(Key::PageDown);
        let below = picture((80, 24), &mut state);
        assert_ne!(page, below, "a page scrolls");
    }

    #[test]
    fn a_replay_of_every_setting() {
        let mut state = state("streams-s11-default.pickle.gz", true);
        state.key(Key::Letter('r'));
        insta::assert_snapshot!("frameworks_replay_120x40", picture((120, 40), &mut state));
    }

    #[test]
    fn the_devices_of_a_capture() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("heap.bin");
        let fixture = Path::new(env!("CARGO_MANIFEST_DIR")).join("../heap/tests/data/devices.bin");
        std::fs::copy(fixture, &path).unwrap();
        let roots = vec![directory.path().to_owned()];
        let mut state = FrameworksState::new(roots.clone());
        let ask = FrameworksAsk { paths: roots, chosen: Some(path), replays: false };
        let mut reader = FrameworksReader::default();
        while reader.look(&ask).1 {}
        let look = reader.look(&ask).0;
        let at_ns = look.sources[0].modified_ns;
        state.take(FrameworksLook { at_ns, ..look.clone() });
        state.take(FrameworksLook { at_ns, ..look });
        insta::assert_snapshot!("frameworks_capture_120x40", picture((120, 40), &mut state));
        assert_eq!(state.key(Key::Letter('y')), Step::Copy(command_of(&state)));
    }

    fn command_of(state: &FrameworksState) -> String {
        format!("stormlog stats {}", state.chosen().unwrap().display())
    }

    #[test]
    fn telemetry_of_two_frameworks() {
        let device = |backend: &str, device_id| FrameworkDevice {
            backend: backend.to_owned(),
            device_id,
            samples: 100,
            allocated: Some(5 << 30),
            peak_allocated: Some(7 << 30),
            reserved: Some(9 << 30),
            inactive: Some(4 << 30),
            used: Some(10 << 30),
            fragmentation: (device_id == 0).then_some(0.44),
            ..FrameworkDevice::default()
        };
        let phase = |path: &str, calls| PhaseRow {
            path: path.to_owned(),
            calls,
            peak: Some(6 << 30),
            mean_change: Some(-(12 << 20)),
            mean_ns: 230_000_000,
            last_ns: 1000 * HOUR - HOUR / 4,
        };
        let found = FrameworkTelemetry {
            devices: vec![device("cuda", 0), device("tensorflow", 1), device("cpu", -1)],
            phases: vec![phase("train / forward", 1200), phase("train\u{1b}[2J", 3)],
            events: 123_456,
            alerts: 2,
            notes: vec!["the last line is truncated (its writer was killed) and was left out".to_owned()],
        };
        let mut state = state("streams-s11-default.pickle.gz", false);
        state.key(Key::Down);
        let path: PathBuf = state.chosen().unwrap().to_owned();
        let look = FrameworksLook {
            at_ns: 1000 * HOUR,
            sources: Arc::new(state.sources().cloned().collect()),
            detail: Some(Arc::new(Detail { path, content: Content::Telemetry(found) })),
            replay: None,
        };
        state.take(look);
        for size in SIZES {
            let name = format!("frameworks_telemetry_{}x{}", size.0, size.1);
            let shown = picture(size, &mut state);
            assert!(!shown.contains('\u{1b}'));
            insta::assert_snapshot!(name, shown);
        }
    }

    #[test]
    fn empty_view_draws_at_any_size() {
        let mut state = FrameworksState::new(Vec::new());
        assert!(picture((80, 24), &mut state).contains("reading…"));
        state.take(FrameworksLook::default());
        assert!(picture((80, 24), &mut state).contains("no allocator snapshot and no telemetry here"));
        let mut full = self::state("streams-s11-default.pickle.gz", false);
        for columns in (1..400).step_by(7) {
            for rows in [3, 4, 5, 9, 24] {
                picture((columns, rows), &mut full);
                picture((columns, rows), &mut state);
            }
        }
    }
}
