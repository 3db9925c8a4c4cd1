//! PyTorch allocator snapshots: a reader that runs nothing, the allocator's state at any event, a model of the
//! allocator that replays a recording under other settings, and verdicts in words.
//!
//! Snapshots are input from strangers: nothing here may execute them, panic on them, or let them take more memory
//! than their size warrants. Nothing here prints.
#![forbid(unsafe_code)]

mod analysis;
mod error;
mod export;
mod findings;
mod intern;
mod lifetimes;
mod model;
mod program;
mod read;
mod recording;
mod replay;
mod replay_progress;
mod report;
mod rewind;
mod settings;
mod snapshot;
mod text;
mod timeline;
mod trace;
mod track;

pub use analysis::decompose::Decomposition;
pub use analysis::diff::{CategoryDiff, DeviceDiff, Sides, SnapshotDiff, StackDiff, diff};
pub use analysis::growth::Growth;
pub use analysis::holders::{CategoryShare, Holder};
pub use analysis::oom::OomReport;
pub use analysis::peak::Peaks;
pub use analysis::request::{FailedRequest, OomCause, ProcessLimit};
pub use analysis::snapshot_moment::{Mark, NoSuchMark, SnapshotMoment};
pub use analysis::stacks::stack_profile;
pub use analysis::verdict::{Verdict, VerdictKind};
pub use error::SnapshotError;
pub use export::{ExportFormat, export};
pub use intern::{Frame, FrameId, StackId, StrId, Tables};
pub use lifetimes::BlockLifetime;
pub use model::Totals;
pub use program::LimitBounds;
pub use read::{fuzz, is_snapshot, load, read};
pub use recording::Recording;
pub use replay::{Prediction, Recorded, Replayer, SelfMatch};
pub use replay_progress::ReplayProgress;
pub use report::{
    Advice, DeviceReport, PoolReport, PoolVerdict, ReplayReport, ReportOptions, SnapshotReport,
    replay_report, report,
};
pub use settings::{AllocatorSettings, SettingsError};
pub use snapshot::{Annotation, Block, BlockState, PoolId, Segment, Snapshot};
pub use stormlog_model::gpu_category::{CUBLAS_WORKSPACE, CUBLAS_WORKSPACE_HOPPER, Category};
pub use text::{settings_name, write_oom, write_replay_page, write_snapshot_page};
pub use timeline::{
    ShownMoment, StackLife, StacksOverTime, Timeline, TimelineLimits, stacks_over_time, timeline,
};
pub use trace::{Action, Context, Event};
pub use track::{TrackedBlock, TrackedSegment, Tracker};

/// Looks at all of a snapshot, for fuzzing.
fn touch(snapshot: &Snapshot) {
    let report = report(snapshot, &ReportOptions::default());
    let _ = replay_report(snapshot, 0, &[], Some(1 << 33), true);
    let recording = Recording::new(snapshot, 0);
    let _ = timeline(&recording, &TimelineLimits { moments: 16, blocks: 8, spans: 4 });
    let _ = stacks_over_time(&recording, 16);
    let _ = report.findings("snapshot", "");
    let recordings = [recording];
    let _ = diff(&recordings, &recordings, &SnapshotMoment::Peak);
    let _ = stack_profile(&recordings, &SnapshotMoment::End);
}
