//! When the most was held.

use crate::model::Totals;
use crate::recording::Recording;
use crate::trace::Action;

/// The peaks of a recording, and the moments they were reached.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Peaks {
    /// The largest of each, not all at the same moment.
    pub totals: Totals,
    /// Events up to and including the one that first brought reserved memory to its peak and was served from it.
    pub reserved_after: usize,
    /// Events up to and including the one that first brought allocated memory to its peak.
    pub allocated_after: usize,
    /// Totals at the end.
    pub end: Totals,
}

/// One walk over a recording.
pub(crate) fn find(recording: &Recording<'_>) -> Peaks {
    let start = recording.tracker().totals();
    let mut peaks = Peaks { totals: start, end: start, ..Peaks::default() };
    // A segment is taken right before the block it is for: the block belongs to the peak.
    let mut fresh = false;
    for (index, (now, event)) in
        recording.totals().zip(recording.snapshot.trace(recording.device)).enumerate()
    {
        if now.reserved > peaks.totals.reserved {
            peaks.totals.reserved = now.reserved;
            peaks.reserved_after = index + 1;
            fresh = true;
        } else if fresh && event.action == Action::Alloc {
            if now.reserved == peaks.totals.reserved {
                peaks.reserved_after = index + 1;
            }
            fresh = false;
        }
        if now.allocated > peaks.totals.allocated {
            peaks.totals.allocated = now.allocated;
            peaks.allocated_after = index + 1;
        }
        peaks.totals.active = peaks.totals.active.max(now.active);
        peaks.totals.requested = peaks.totals.requested.max(now.requested);
        peaks.end = now;
    }
    peaks
}
