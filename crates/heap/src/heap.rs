//! A capture, opened and read once: everything the views ask for.

use std::path::{Path, PathBuf};

use serde_json::Value;
use stormlog_capture::file::Sample;
use stormlog_capture::live::Header;
use stormlog_capture::source::{Piece, Source};
use stormlog_import::Format;
use stormlog_model::memory::Selection;
use stormlog_model::own_code::OwnCode;
use stormlog_model::stacks::Weight;

use crate::curve::Point;
use crate::error::HeapError;
use crate::ledger::Ledger;
use crate::own_code::own_code;
use crate::read_options::HeapReadOptions;
use crate::state::State;
use crate::tree::{Module, ROOT};
use crate::{checkpoint, import, merge};

/// A capture on disk: ours, finished or live, one of Memray's, or the profile of another tool.
#[derive(Debug)]
pub struct Capture {
    path: PathBuf,
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    Own(Box<Source>, Vec<Piece>),
    Memray,
    Imported(Format),
}

/// What a capture says.
#[derive(Debug)]
pub struct Heap {
    pub(crate) state: State,
    /// The recorded process about itself.
    pub header: Header,
    /// Memory of the process as seen from outside.
    pub samples: Vec<Sample>,
    /// How it ended, where that was observed.
    pub ending: Option<Value>,
    /// The file lacks its end; this many bytes behind its last whole block are left of it.
    pub cut: Option<u64>,
    /// Records that are in no file, because there was no room for them.
    pub lost_events: u64,
    /// The process came to its own end and its records are all here; false when it was killed or still runs, or the file was cut.
    pub complete: bool,
    /// The memory that questions are asked of, where one was chosen.
    pub(crate) selected: Option<Selection>,
    /// What another tool recorded, and what its file cannot tell.
    pub imported: Option<Imported>,
}

/// What is to be known of a profile of another tool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Imported {
    /// What wrote it.
    pub format: Format,
    /// Sentences that every view must show.
    pub notes: Vec<String>,
    /// It has each block as it came and went; otherwise what stacks held at one or two moments.
    pub has_blocks: bool,
}

impl Capture {
    /// Opens a capture file. The captures of a directory are found by the catalog.
    pub fn open(path: &Path) -> Result<Capture, HeapError> {
        Self::open_as(path, true)
    }

    /// As [`open`](Self::open), for a capture whose process has ended and which no compactor works on: no record is copied beforehand.
    pub fn open_still(path: &Path) -> Result<Capture, HeapError> {
        Self::open_as(path, false)
    }

    fn open_as(path: &Path, may_move: bool) -> Result<Capture, HeapError> {
        if path.is_dir() {
            return Err(HeapError::NoCapture { path: path.to_owned() });
        }
        let path = path.to_owned();
        // The live file may be named itself, also by a reader that found it before it was completed.
        let path =
            match path.to_str().and_then(|text| text.strip_suffix(stormlog_capture::layout::LIVE_SUFFIX)) {
                Some(capture) if path.exists() || Path::new(capture).exists() => PathBuf::from(capture),
                _ => path,
            };
        if import::memray::is_memray(&path) {
            return Ok(Capture { path, kind: Kind::Memray });
        }
        if let Some(format) = stormlog_import::recognise(&path) {
            return Ok(Capture { path, kind: Kind::Imported(format) });
        }
        let mut source = Source::open(&path)?;
        let pieces = source.pieces(may_move)?;
        Ok(Capture { path, kind: Kind::Own(Box::new(source), pieces) })
    }

    /// The file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// When the recording began, nanoseconds since 1970; 0 where the file does not tell.
    pub fn start_realtime_ns(&self) -> Result<u64, HeapError> {
        match &self.kind {
            Kind::Memray | Kind::Imported(_) => Ok(0),
            Kind::Own(source, _) => Ok(source.header()?.start_realtime_ns),
        }
    }

    /// Reads everything, once.
    pub fn read(&self, options: HeapReadOptions) -> Result<Heap, HeapError> {
        match &self.kind {
            Kind::Memray => import::memray::read(&self.path, options),
            Kind::Imported(format) => import::foreign::read(&self.path, *format, options),
            Kind::Own(source, pieces) => self.read_own(source, pieces, options),
        }
    }

    fn read_own(
        &self,
        source: &Source,
        pieces: &[Piece],
        options: HeapReadOptions,
    ) -> Result<Heap, HeapError> {
        let header = source.header()?;
        let finished = source.finished.as_ref();
        let base = finished.map(|finished| finished.checkpoint()).transpose()?.flatten();
        let (mut state, mut streams) = match base {
            Some(bytes) => {
                checkpoint::load(&bytes, options, header.sample_bytes).ok_or_else(|| self.damaged())?
            }
            None => (State::new(options, header.sample_bytes), Vec::new()),
        };
        self.check_folded(&state)?;
        merge::run(&mut state, &mut streams, source, pieces, u64::MAX)?;
        state.end(&mut streams);
        let ending = finished.map(|finished| finished.ending()).transpose()?.flatten();
        let number = |key: &str| ending.as_ref().and_then(|ending| ending.get(key)).and_then(Value::as_u64);
        let is_signal =
            ending.as_ref().and_then(|ending| ending.get("signal")).is_some_and(|signal| !signal.is_null());
        let cut = source.cut()?;
        if cut.is_some() && state.ledgers().all(Ledger::is_empty) {
            return Err(HeapError::NothingLeft { path: self.path.clone() });
        }
        let ended = header.ended()
            || number("state").is_some_and(|state| state != 0)
            || number("exit_code").is_some();
        Ok(Heap {
            state,
            samples: finished.map(|finished| finished.samples()).transpose()?.unwrap_or_default(),
            lost_events: number("lost_events").unwrap_or(0).max(header.lost_events),
            complete: ended
                && !is_signal
                && cut.is_none()
                && header.flags & stormlog_capture::layout::flags::CUT == 0,
            cut,
            ending,
            header,
            selected: None,
            imported: None,
        })
    }

    /// Folded records cannot be distinguished any more: a moment before their end has no answer.
    fn check_folded(&self, state: &State) -> Result<(), HeapError> {
        let Some(until_us) = state.folded_us else { return Ok(()) };
        let is_at_known = state.options.at_us.is_none_or(|at| at >= until_us);
        let is_span_known = state.options.span_us.is_none_or(|(from, _)| from > until_us);
        match is_at_known && is_span_known {
            true => Ok(()),
            false => Err(HeapError::Folded { path: self.path.clone(), until_us }),
        }
    }

    fn damaged(&self) -> HeapError {
        let what = "the summary of its older records does not decode".to_owned();
        stormlog_capture::CaptureError::Damaged { path: self.path.clone(), what }.into()
    }
}

impl Heap {
    /// Memory over time.
    #[must_use]
    pub fn curve(&self) -> &[Point] {
        &self.ledger().curve.points
    }

    /// Most bytes within the selected span, and when (microseconds since the start).
    #[must_use]
    pub fn span_peak(&self) -> Option<(u64, u64)> {
        self.ledger().span_peak
    }

    /// Whether it is known when blocks came and went; not of most profiles of other tools.
    #[must_use]
    pub fn has_blocks(&self) -> bool {
        self.imported.as_ref().is_none_or(|imported| imported.has_blocks)
    }

    /// Whether all that it has is what a leak checker found.
    #[must_use]
    pub fn has_leaks_only(&self) -> bool {
        self.imported.as_ref().is_some_and(|imported| imported.format.is_leak_report())
    }

    /// Allocations in all.
    #[must_use]
    pub fn allocations(&self) -> u64 {
        let ledger = self.ledger();
        ledger.weight(ledger.allocated()).count
    }

    /// Whether it is known what lived when the last request got no memory ([`Mode::Failure`](crate::Mode::Failure)).
    #[must_use]
    pub fn knows_failure(&self) -> bool {
        self.ledger().failure.is_some()
    }

    /// When the program's own code had ended and the interpreter began to take itself down: microseconds since the start, and the change of the
    /// heap for [`HeapReadOptions::moments`] (0 where records were folded). `None`: not seen, or the program continued.
    #[must_use]
    pub fn code_end(&self) -> Option<(u64, u64)> {
        self.ledger().code_end.as_ref().map(|end| (end.time_us, end.change))
    }

    /// Bytes and blocks that lived when the program's own code had ended, or at the end.
    #[must_use]
    pub fn leaked(&self) -> Weight {
        self.ledger().weight(self.ledger().leaked())
    }

    /// The installed package that the program runs, if it does.
    #[must_use]
    pub fn own_code(&self) -> OwnCode {
        own_code(&self.state.tree)
    }

    /// Up to this time (microseconds since the start) the capture has no individual records. `None`: it has all.
    #[must_use]
    pub fn folded_us(&self) -> Option<u64> {
        self.state.folded_us
    }

    /// Libraries and programs that contain the native frames.
    #[must_use]
    pub fn modules(&self) -> &[Module] {
        &self.state.tree.modules
    }

    /// The Python that ran, as it names itself.
    #[must_use]
    pub fn python(&self) -> Option<&str> {
        self.state.python.as_deref()
    }

    /// Whether any stack has a frame of Python.
    #[must_use]
    pub fn has_python_stacks(&self) -> bool {
        let sites = self.state.ledgers().flat_map(|ledger| &ledger.sites);
        sites.into_iter().any(|site| site.key.python != ROOT)
    }

    /// Microseconds from the start to the last record.
    #[must_use]
    pub fn duration_us(&self) -> u64 {
        self.state.time_us
    }
}
