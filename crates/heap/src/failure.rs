//! The heap when the last request got no memory, without a second reading: a site's figures at the failure are written down only when it is touched
//! for the first time after it. Must cost nothing while no request has failed.

use crate::ledger::Ledger;
use crate::level::Amount;

/// What the sites held when the last request failed.
#[derive(Debug, Default)]
pub(crate) struct AtFailure {
    /// Which failure it is, from 1 on.
    number: u32,
    /// By site: the failure it was last touched after, and what it held at that failure.
    sites: Vec<(u32, Amount)>,
}

impl AtFailure {
    /// A site that holds `now` is about to change.
    pub(crate) fn touch(&mut self, site: u32, now: Amount) {
        let site = site as usize;
        if self.sites.len() <= site {
            self.sites.resize(site + 1, (0, Amount::default()));
        }
        if self.sites[site].0 != self.number {
            self.sites[site] = (self.number, now);
        }
    }
}

impl Ledger {
    /// A request got no memory now.
    pub(crate) fn begin_failure(&mut self) {
        let failure = self.failure.get_or_insert_default();
        failure.number = failure.number.wrapping_add(1);
    }

    /// What a site held at the last failure; `None` where none is known.
    pub(crate) fn at_failure(&self, site: usize) -> Option<Amount> {
        let failure = self.failure.as_ref()?;
        match failure.sites.get(site) {
            Some((number, held)) if *number == failure.number => Some(*held),
            _ => self.sites.get(site).map(|site| site.now),
        }
    }
}
