//! `analyze --visualization`: memory over time, and the ranks of a job, as PNG and SVG files.
//!
//! What is drawn is taken before the rules have consumed the recording, and drawn when they have spoken.

use std::path::{Path, PathBuf};

use stormlog_analyze::rules::ranks::CrossRank;
use stormlog_analyze::timeline::{Line, Timeline, timelines};
use stormlog_analyze::{Analysis, Recording};
use stormlog_model::{Finding, Severity, format_bytes};
use stormlog_render::plot::{
    Axis, Band, Content, Dot, Figure, Lines, Mark, MarkKind, Measure, Panel, Phase, Rule, Series,
    median_and_range,
};

use crate::cmd::atomic_write;

/// Streams of the timeline; more do not fit on a page people look at.
const MOST_STREAMS: usize = 6;
/// Fewer points do not define a line.
const LEAST_POINTS: usize = 4;
/// Small multiples; more than these are not seen any more.
const MOST_RANKS: usize = 64;
/// Lines that can be distinguished.
const MOST_COLOURS: usize = 8;
/// The colour of the middle of all, of a floor, and of those that stand out.
const MEDIAN: &str = "#5b6774";
const FLOOR: &str = "#444b54";
const OUTSTANDING: [&str; 4] = ["#1f6fb2", "#d9720f", "#2a8f5b", "#8a4fa3"];
/// Twice the pixels each way: sharp in print and on dense screens.
const SCALE: f64 = 2.0;

/// What can be drawn of a recording.
pub(crate) struct Plots {
    timelines: Vec<Timeline>,
}

impl Plots {
    pub(crate) fn of(recording: &Recording) -> Self {
        let mut timelines = timelines(recording);
        // A process that was seen once or twice is not a line; where that is all there is, it is shown.
        let is_line =
            |timeline: &Timeline| timeline.lines.iter().any(|line| line.points.len() >= LEAST_POINTS);
        if timelines.iter().any(is_line) {
            timelines.retain(is_line);
        }
        Plots { timelines }
    }

    /// Draws everything into a directory; the files that were written. None where there is nothing to draw.
    pub(crate) fn write(&self, analysis: &Analysis, folder: &Path) -> anyhow::Result<Vec<PathBuf>> {
        let mut written = Vec::new();
        if !self.timelines.is_empty() {
            written.extend(save(&self.memory(Some(analysis)), folder, "memory_timeline")?);
        }
        written.extend(self.write_ranks(analysis, folder)?);
        Ok(written)
    }

    /// Memory over time as one PNG file, whatever else there is; false where there is nothing to draw.
    pub(crate) fn write_timeline(&self, file: &Path) -> anyhow::Result<bool> {
        if self.timelines.is_empty() {
            return Ok(false);
        }
        atomic_write::write(file, self.memory(None).png(SCALE)?)?;
        Ok(true)
    }

    /// The pictures of a page: memory over time, and the ranks of each job on one clock.
    pub(crate) fn figures(&self, analysis: &Analysis) -> Vec<Figure> {
        let mut figures = Vec::new();
        if !self.timelines.is_empty() {
            figures.push(self.memory(Some(analysis)));
        }
        for job in &analysis.jobs {
            let ranks = self.ranks(job);
            if !ranks.is_empty() {
                figures.push(across(job, &ranks, analysis));
            }
        }
        figures
    }

    /// The pictures of ranks alone.
    pub(crate) fn write_ranks(&self, analysis: &Analysis, folder: &Path) -> anyhow::Result<Vec<PathBuf>> {
        let mut written = Vec::new();
        for (number, job) in analysis.jobs.iter().enumerate() {
            let suffix = if number == 0 { String::new() } else { format!("_{}", number + 1) };
            let ranks = self.ranks(job);
            if ranks.is_empty() {
                continue;
            }
            written.extend(save(
                &across(job, &ranks, analysis),
                folder,
                &format!("cross_rank_timeline{suffix}"),
            )?);
            written.extend(save(&multiples(job, &ranks), folder, &format!("rank_timelines{suffix}"))?);
        }
        Ok(written)
    }

    fn memory(&self, analysis: Option<&Analysis>) -> Figure {
        let shown = &self.timelines[..self.timelines.len().min(MOST_STREAMS)];
        let left_out = self.timelines.len() - shown.len();
        let sessions = shown.iter().all(|timeline| timeline.session_id == shown[0].session_id);
        let mut subtitle = if sessions { format!("session {}", shown[0].session_id) } else { String::new() };
        if left_out > 0 {
            subtitle =
                format!("the {} streams with the highest peaks; {left_out} more are not drawn", shown.len());
        }
        let programs: Vec<&str> = shown.iter().filter_map(|timeline| timeline.program.as_deref()).collect();
        let is_one_program = programs.iter().all(|program| *program == programs[0]);
        let panels = shown.iter().map(|timeline| {
            let mut title = place(timeline);
            if !is_one_program {
                title = format!("{} · {title}", timeline.program.as_deref().unwrap_or("unknown program"));
            }
            if !sessions && timeline.program.is_none() {
                title = format!("{title} · session {}", timeline.session_id);
            }
            if let Some(finding) = analysis.and_then(|analysis| finding_of(analysis, timeline)) {
                title = format!("{title} · {finding}");
            }
            panel(title, timeline)
        });
        let title = match programs.first().filter(|_| is_one_program) {
            Some(program) => format!("{program}: memory over time"),
            None => "Memory over time".to_owned(),
        };
        Figure { title, subtitle, columns: 1, panels: panels.collect() }
    }

    /// The fullest stream of each rank of a job, by rank.
    fn ranks(&self, job: &CrossRank) -> Vec<&Timeline> {
        let of = |rank: &u64| {
            let belongs =
                |timeline: &&Timeline| timeline.rank == *rank && timeline.world_size == job.world_size;
            self.timelines
                .iter()
                .find(belongs)
                .or_else(|| self.timelines.iter().find(|timeline| timeline.rank == *rank))
        };
        job.participating.iter().filter_map(of).collect()
    }
}

fn place(timeline: &Timeline) -> String {
    let mut parts = Vec::new();
    if timeline.world_size > 1 {
        parts.push(format!("rank {}", timeline.rank));
    }
    parts.push(if timeline.device_id < 0 {
        "host".to_owned()
    } else {
        format!("device {}", timeline.device_id)
    });
    if timeline.pid > 0 {
        parts.push(format!("pid {}", timeline.pid));
    }
    parts.join(", ")
}

fn memory_axis() -> Axis {
    Axis::new("Memory", Measure::Bytes)
}

fn time_axis(label: &str) -> Axis {
    Axis::new(label, Measure::Seconds)
}

/// Seconds from one moment to another, before or after it.
fn seconds(from_ns: u64, to_ns: u64) -> f64 {
    (i128::from(to_ns) - i128::from(from_ns)) as f64 / 1e9
}

/// The worst that was found about a stream, without where: the panel has that already.
fn finding_of(analysis: &Analysis, timeline: &Timeline) -> Option<String> {
    let is_device = timeline.device_id >= 0;
    let about = |finding: &&Finding| {
        finding.process == Some(timeline.pid)
            && finding.memory.is_some_and(|memory| memory.is_device() == is_device)
            && !finding.undecided
    };
    let title = &analysis.findings.iter().find(about)?.title;
    Some(title.rsplit_once(" (").map_or(title.as_str(), |(what, _)| what).to_owned())
}

fn panel(title: String, timeline: &Timeline) -> Panel {
    let start = timeline.span_ns.0;
    let is_lone = timeline.lines.len() == 1;
    let floor = timeline.lines.first().map(Line::floor).filter(|floor| !floor.is_empty());
    let floor = floor.map(|points| Series {
        name: "floor".to_owned(),
        points: points.iter().map(|(at, bytes)| (seconds(start, *at), *bytes as f64)).collect(),
        dashed: true,
        colour: Some(FLOOR.to_owned()),
        ..Series::default()
    });
    let lines = Lines {
        series: timeline
            .lines
            .iter()
            .map(|line| Series {
                name: line.name.to_owned(),
                points: line.points.iter().map(|(at, bytes)| (seconds(start, *at), *bytes as f64)).collect(),
                fill: is_lone,
                ..Series::default()
            })
            .chain(floor)
            .collect(),
        limit: timeline
            .limit
            .map(|limit| Rule { name: format!("limit {}", format_bytes(limit)), at: limit as f64 }),
        phases: timeline
            .phases
            .iter()
            .map(|(name, from, to)| Phase {
                name: name.clone(),
                from: seconds(start, *from),
                to: seconds(start, *to),
            })
            .collect(),
        marks: timeline
            .moments
            .iter()
            .map(|moment| Mark {
                name: moment.name.to_owned(),
                // What was said before the first sample is shown at it.
                at: seconds(start, moment.at_ns.clamp(start, timeline.span_ns.1.max(start))),
                kind: match moment.severity {
                    Severity::Critical => MarkKind::Critical,
                    Severity::Warning => MarkKind::Warning,
                    Severity::Info => MarkKind::Note,
                },
            })
            .collect(),
        ..Lines::default()
    };
    Panel {
        title,
        x: time_axis("Time since the first sample"),
        y: memory_axis(),
        content: Content::Lines(lines),
    }
}

/// The line that stands for a rank: what its device has in use, or what it has.
fn rank_points(timeline: &Timeline) -> &[(u64, u64)] {
    timeline.lines.last().map_or(&[], |line| &line.points)
}

/// All ranks on one clock, by the best alignment there is.
fn across(job: &CrossRank, ranks: &[&Timeline], analysis: &Analysis) -> Figure {
    let cause = job.best();
    let offset = |rank: u64| cause.offsets_ns.get(&rank).copied().unwrap_or(0);
    let aligned = |rank: u64, at: u64| i128::from(at) - offset(rank);
    let start = ranks.iter().map(|timeline| aligned(timeline.rank, timeline.span_ns.0)).min().unwrap_or(0);
    let time = |aligned: i128| (aligned - start) as f64 / 1e9;
    let odd = odd_ranks(analysis);
    let named = named_ranks(job, ranks, &odd);
    let (mut drawn, others): (Vec<&Timeline>, Vec<&Timeline>) =
        ranks.iter().partition(|timeline| named.contains(&timeline.rank));
    drawn.sort_by_key(|timeline| named.iter().position(|rank| *rank == timeline.rank));
    let line = |timeline: &Timeline| Series {
        name: format!("rank {}", timeline.rank),
        points: rank_points(timeline)
            .iter()
            .map(|(at, bytes)| (time(aligned(timeline.rank, *at)), *bytes as f64))
            .collect(),
        ..Series::default()
    };
    let is_crowded = !others.is_empty();
    let mut series: Vec<Series> = Vec::new();
    let mut band = None;
    if is_crowded {
        let all: Vec<Series> = ranks.iter().map(|timeline| line(timeline)).collect();
        let (median, range) = median_and_range(&all);
        let (name, colour) = ("median of all ranks".to_owned(), Some(MEDIAN.to_owned()));
        series.push(Series { name, colour, ..median });
        band = Some(Band { name: format!("least to greatest of {} ranks", ranks.len()), ..range });
    }
    let colours = OUTSTANDING.iter().cycle().map(|colour| is_crowded.then(|| (*colour).to_owned()));
    series
        .extend(drawn.into_iter().zip(colours).map(|(timeline, colour)| Series { colour, ..line(timeline) }));
    let mut lines = Lines { series, band, ..Lines::default() };
    for rank in &odd {
        let odd = ranks.iter().find(|timeline| timeline.rank == *rank);
        let most = odd.and_then(|timeline| rank_points(timeline).iter().max_by_key(|(_, bytes)| *bytes));
        lines.dots.extend(most.map(|(at, bytes)| Dot {
            name: format!("rank {rank}: outlier"),
            x: time(aligned(*rank, *at)),
            y: *bytes as f64,
        }));
    }
    if let Some(onset) = cause.onset_ns {
        lines.moments.push(Rule { name: "cluster onset".to_owned(), at: time(onset) });
    }
    let is_host = ranks.iter().all(|timeline| timeline.device_id < 0);
    let mut title = "Ranks on one clock".to_owned();
    if let Some(suspect) = cause.suspects.first() {
        title = format!("{title}: rank {} jumped first", suspect.rank);
        let timeline = ranks.iter().find(|timeline| timeline.rank == suspect.rank);
        let point = timeline.and_then(|timeline| {
            rank_points(timeline).iter().min_by_key(|(at, _)| at.abs_diff(suspect.first_spike_ns))
        });
        lines.dots.extend(point.map(|(_, bytes)| Dot {
            name: format!("rank {} first", suspect.rank),
            x: time(aligned(suspect.rank, suspect.first_spike_ns)),
            y: *bytes as f64,
        }));
    }
    let panel = Panel {
        title: String::new(),
        x: time_axis(&format!("Time, aligned by {}", cause.alignment.as_str().replace('_', " "))),
        y: Axis::new(if is_host { "Resident memory" } else { "Device memory used" }, Measure::Bytes),
        content: Content::Lines(lines),
    };
    Figure { title, subtitle: about(job), columns: 1, panels: vec![panel] }
}

/// Ranks that a rule calls outliers.
fn odd_ranks(analysis: &Analysis) -> Vec<u64> {
    let odd = analysis.findings.iter().filter(|finding| finding.kind == "rank_outlier");
    odd.filter_map(|finding| finding.metrics.get("rank")?.as_u64()).collect()
}

/// The ranks that have a colour of their own: all of a few; of many, those that jumped first and the fullest.
fn named_ranks(job: &CrossRank, ranks: &[&Timeline], odd: &[u64]) -> Vec<u64> {
    if ranks.len() <= MOST_COLOURS {
        return ranks.iter().map(|timeline| timeline.rank).collect();
    }
    let mut fullest: Vec<&&Timeline> = ranks.iter().collect();
    fullest.sort_by_key(|timeline| std::cmp::Reverse(timeline.peak()));
    let suspects = job.best().suspects.iter().map(|suspect| suspect.rank).take(3);
    let mut named: Vec<u64> = Vec::new();
    for rank in suspects.chain(odd.iter().copied()).chain(fullest.first().map(|timeline| timeline.rank)) {
        if !named.contains(&rank) {
            named.push(rank);
        }
    }
    named
}

fn about(job: &CrossRank) -> String {
    let name = job.job_id.as_ref().map(|name| format!("job {name}, ")).unwrap_or_default();
    let missing = match job.missing.len() {
        0 => String::new(),
        count => format!(", {count} have no data"),
    };
    format!("{name}{} of {} ranks{missing}", job.participating.len(), job.world_size)
}

/// A small panel a rank, all of one height of scale.
fn multiples(job: &CrossRank, ranks: &[&Timeline]) -> Figure {
    let highest = ranks.iter().map(|timeline| timeline.peak()).max().unwrap_or(0);
    let panels: Vec<Panel> = ranks
        .iter()
        .take(MOST_RANKS)
        .map(|timeline| {
            let mut panel = panel(place(timeline), timeline);
            panel.x.label = "Time".to_owned();
            panel.y.end = Some(highest as f64 * 1.04);
            if let Content::Lines(lines) = &mut panel.content {
                lines.phases.clear();
                lines.limit = None;
            }
            panel
        })
        .collect();
    let mut subtitle = about(job);
    if ranks.len() > panels.len() {
        subtitle = format!("{subtitle}; the first {} are drawn", panels.len());
    }
    let names: Vec<&str> = ranks
        .first()
        .map(|timeline| timeline.lines.iter().map(|line| line.name).collect())
        .unwrap_or_default();
    let colours = ["blue", "orange", "green"];
    if names.len() > 1 {
        let key: Vec<String> =
            names.iter().zip(colours).map(|(name, colour)| format!("{name} ({colour})")).collect();
        subtitle = format!("{subtitle} · {}", key.join(", "));
    }
    let columns = ranks.len().clamp(1, 4);
    Figure { title: "Memory of each rank".to_owned(), subtitle, columns, panels }
}

fn save(figure: &Figure, folder: &Path, name: &str) -> anyhow::Result<[PathBuf; 2]> {
    let (png, svg) = (folder.join(format!("{name}.png")), folder.join(format!("{name}.svg")));
    atomic_write::write(&png, figure.png(SCALE)?)?;
    atomic_write::write(&svg, figure.svg())?;
    Ok([png, svg])
}
