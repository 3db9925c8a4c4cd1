//! The heap when the program's own code had ended, before the interpreter shut down: what `--leaks` means. Must be left out where the
//! program did not end there: one that embeds Python may run on for hours after Python has ended.

use crate::ledger::Ledger;
use crate::level::Amount;

/// The heap at that moment.
#[derive(Debug, Clone)]
pub(crate) struct CodeEnd {
    pub(crate) time_us: u64,
    /// The change of the heap before it; 0 where it was folded.
    pub(crate) change: u64,
    pub(crate) held: Amount,
    /// Bytes allocated in all until then.
    pub(crate) allocated: u64,
    /// What each site held; sites that came later held nothing.
    pub(crate) sites: Vec<Amount>,
}

impl Ledger {
    /// The record of the moment has come.
    pub(crate) fn code_has_ended(&mut self) {
        self.code_end = Some(CodeEnd {
            time_us: self.time_us,
            change: self.level.changes,
            held: self.level.now(),
            allocated: self.allocated().bytes,
            sites: self.sites.iter().map(|site| site.now).collect(),
        });
    }

    /// Nothing more comes: the moment counts unless more was allocated after it than was held at it. Teardown allocates next to nothing.
    pub(crate) fn settle_code_end(&mut self) {
        let allocated = self.allocated().bytes;
        self.code_end.take_if(|end| allocated.saturating_sub(end.allocated) > end.held.bytes);
    }

    /// All that was ever allocated.
    pub(crate) fn allocated(&self) -> Amount {
        self.sites.iter().fold(Amount::default(), |mut sum, site| {
            sum.gain(site.total);
            sum
        })
    }

    /// What lived when the program's own code had ended, or at the end.
    pub(crate) fn leaked(&self) -> Amount {
        self.code_end.as_ref().map_or(self.level.now(), |end| end.held)
    }
}
