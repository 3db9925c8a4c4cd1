//! What allocation sites held over time, in a bounded number of looks: the curve by line of records that are folded. A look keeps the largest sites; a site
//! that is left out held less than a five-hundredth of the heap. Must stay bounded whatever the program does, and must refuse bytes that contradict themselves.

use rustc_hash::FxHashMap;
use stormlog_capture::wire::{Put, Take};

use crate::ledger::{Ledger, Site};
use crate::level::Amount;
use crate::lifetimes::Life;
use crate::profile::Mode;

/// Most samples; when there are more, every second one is dropped and the interval is doubled.
const MOST_LOOKS: usize = 96;
/// Most sites of a look.
const MOST_SITES: usize = 512;
/// Microseconds between the first looks.
const FIRST_WIDTH_US: u64 = 50_000;

/// The sites at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
struct SiteSnapshot {
    time_us: u64,
    /// Ascending by site.
    held: Vec<(u32, Amount)>,
}

/// The looks so far.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SiteHistory {
    looks: Vec<SiteSnapshot>,
    width_us: u64,
    pub(crate) next_us: u64,
}

impl Default for SiteHistory {
    fn default() -> Self {
        SiteHistory { looks: Vec::new(), width_us: FIRST_WIDTH_US, next_us: 0 }
    }
}

impl SiteHistory {
    /// The sites as they are at `time_us`, before the clock moves on to a later time.
    pub(crate) fn look(&mut self, time_us: u64, sites: &[Site]) {
        let held = sites.iter().zip(0_u32..).map(|(site, index)| (index, site.now));
        let mut held: Vec<(u32, Amount)> = held.filter(|(_, now)| now.bytes > 0).collect();
        if held.len() > MOST_SITES {
            held.select_nth_unstable_by_key(MOST_SITES, |(_, now)| std::cmp::Reverse(now.bytes));
            held.truncate(MOST_SITES);
            held.sort_unstable_by_key(|(site, _)| *site);
        }
        self.looks.push(SiteSnapshot { time_us, held });
        if self.looks.len() > MOST_LOOKS {
            self.width_us = self.width_us.saturating_mul(2);
            let mut is_kept = false;
            self.looks.retain(|_| {
                is_kept = !is_kept;
                is_kept
            });
        }
        self.next_us = time_us.saturating_add(self.width_us);
    }

    /// The looks until the program's own code had ended, with that moment (or the end) as the last: when, and how many bytes all sites held; and when the memory
    /// of each site came and went, by these looks. What goes is what came last.
    pub(crate) fn lives(&self, ledger: &Ledger) -> (Vec<(u64, u64)>, Vec<Life>) {
        let end_us = ledger.code_end.as_ref().map_or(ledger.time_us, |end| end.time_us);
        let at_end = (0..ledger.sites.len()).zip(0_u32..).filter_map(|(index, site)| {
            let held = ledger.amount_at(Mode::Leaks, index);
            (held.bytes > 0).then_some((site, held))
        });
        let last = SiteSnapshot { time_us: end_us, held: at_end.collect() };
        let looks = self.looks.iter().filter(|look| look.time_us < end_us).chain([&last]);
        let (mut times, mut lives) = (Vec::new(), Vec::new());
        let mut open: FxHashMap<u32, Vec<(u32, Amount)>> = FxHashMap::default();
        for (number, look) in (0_u32..).zip(looks) {
            times.push((look.time_us, whole(&look.held).bytes));
            let gone = |site: &u32| look.held.binary_search_by_key(site, |(site, _)| *site).is_err();
            for (site, parts) in open.iter_mut().filter(|(site, _)| gone(site)) {
                shrink(*site, parts, 0, number, &mut lives);
            }
            for (site, held) in &look.held {
                let parts = open.entry(*site).or_default();
                let Amount { bytes, count } = whole(parts);
                if held.bytes > bytes {
                    let came = Amount { bytes: held.bytes - bytes, count: held.count.saturating_sub(count) };
                    parts.push((number, came));
                } else {
                    shrink(*site, parts, held.bytes, number, &mut lives);
                }
            }
        }
        let end = u32::try_from(times.len()).unwrap_or(u32::MAX);
        for (site, parts) in open {
            lives.extend(parts.into_iter().map(|(birth, amount)| Life { site, birth, death: end, amount }));
        }
        lives.sort_unstable_by_key(|life| (life.site, life.birth, life.death));
        (times, lives)
    }

    pub(crate) fn put(&self, out: &mut Vec<u8>) {
        out.put(self.width_us);
        out.put(self.next_us);
        out.put(self.looks.len() as u64);
        for look in &self.looks {
            out.put(look.time_us);
            out.put(look.held.len() as u64);
            let mut before = 0;
            for (site, held) in &look.held {
                out.put(u64::from(site - before));
                out.put(held.bytes);
                out.put(held.count);
                before = *site;
            }
        }
    }

    pub(crate) fn take(take: &mut Take<'_>, sites: usize) -> Option<Self> {
        let (width_us, next_us) = (take.number()?, take.number()?);
        let count = usize::try_from(take.number()?).ok().filter(|count| *count <= MOST_LOOKS)?;
        let mut looks: Vec<SiteSnapshot> = Vec::new();
        for _ in 0..count {
            let time_us = take.number()?;
            let least = looks.last().map_or(0, |look| look.time_us);
            let count = usize::try_from(take.number()?).ok().filter(|count| *count <= MOST_SITES)?;
            let (mut held, mut site) = (Vec::with_capacity(count), 0_u32);
            for index in 0..count {
                let step = take.small().filter(|step| *step > 0 || index == 0)?;
                site = site.checked_add(step).filter(|site| (*site as usize) < sites)?;
                held.push((site, Amount { bytes: take.number()?, count: take.number()? }));
            }
            looks.push(SiteSnapshot { time_us: Some(time_us).filter(|time| *time >= least)?, held });
        }
        Some(SiteHistory { looks, width_us: width_us.max(1), next_us })
    }
}

/// The sum of amounts, which a damaged file may have made absurd.
fn whole(parts: &[(u32, Amount)]) -> Amount {
    parts.iter().fold(Amount::default(), |sum, (_, part)| Amount {
        bytes: sum.bytes.saturating_add(part.bytes),
        count: sum.count.saturating_add(part.count),
    })
}

/// Ends what came last until `left` bytes are there.
fn shrink(site: u32, parts: &mut Vec<(u32, Amount)>, left: u64, death: u32, lives: &mut Vec<Life>) {
    let mut excess = whole(parts).bytes.saturating_sub(left);
    while let Some((birth, part)) = parts.last_mut().filter(|_| excess > 0) {
        let bytes = excess.min(part.bytes);
        let count = (part.count as f64 * (bytes as f64 / part.bytes.max(1) as f64)).round() as u64;
        lives.push(Life { site, birth: *birth, death, amount: Amount { bytes, count } });
        excess -= bytes;
        if bytes == part.bytes {
            parts.pop();
        } else {
            part.lose(Amount { bytes, count });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::SiteKey;
    use crate::read_options::HeapReadOptions;

    /// A ledger of three sites: one that grows, one that stays, one that comes and goes.
    fn ledger(seconds: u64) -> Ledger {
        let mut ledger =
            Ledger::new(&HeapReadOptions { keeps_history: true, ..HeapReadOptions::default() }, &[], 0, 0);
        let sites = [1, 2, 3].map(|python| ledger.site_of(SiteKey { python, native: 0, thread: 0, kind: 0 }));
        ledger.gain(sites[1], Amount { bytes: 500, count: 5 });
        for second in 1..=seconds {
            ledger.advance(second * 1_000_000);
            ledger.gain(sites[0], Amount { bytes: 10, count: 1 });
            match second % 2 {
                0 => ledger.gain(sites[2], Amount { bytes: 70, count: 1 }),
                _ if second > 1 => drop(ledger.lose::<false>(sites[2], Amount { bytes: 70, count: 1 })),
                _ => {}
            }
        }
        ledger
    }

    #[test]
    fn lives_add_up_to_what_each_site_held() {
        let ledger = ledger(40);
        let (times, lives) = ledger.history.as_ref().unwrap().lives(&ledger);
        assert_eq!(times.last(), Some(&(40_000_000, 400 + 500 + 70)));
        for (number, (_, bytes)) in (0_u32..).zip(&times) {
            let alive = lives.iter().filter(|life| (life.birth..life.death).contains(&number));
            assert_eq!(alive.map(|life| life.amount.bytes).sum::<u64>(), *bytes, "look {number}");
        }
        let grows: Vec<u32> = lives.iter().filter(|life| life.site == 0).map(|life| life.birth).collect();
        assert_eq!((grows.len(), grows.is_sorted()), (40, true), "it came little by little");
    }

    #[test]
    fn history_stays_bounded_over_a_long_time() {
        let ledger = ledger(100_000);
        let history = ledger.history.as_ref().unwrap();
        assert!((MOST_LOOKS / 2..=MOST_LOOKS).contains(&history.looks.len()), "{}", history.looks.len());
        let mut many = SiteHistory::default();
        let site = |bytes: u64| Site { now: Amount { bytes, count: 1 }, ..ledger.sites[0].clone() };
        let sites: Vec<Site> = (0..5000).map(site).collect();
        many.look(7, &sites);
        assert_eq!(many.looks[0].held.len(), MOST_SITES);
        assert_eq!(many.looks[0].held.last().map(|(site, _)| *site), Some(4999));
    }

    #[test]
    fn history_is_read_as_it_was_written_and_contradictions_are_refused() {
        let ledger = ledger(300);
        let history = ledger.history.as_ref().unwrap();
        let mut bytes = Vec::new();
        history.put(&mut bytes);
        assert_eq!(SiteHistory::take(&mut Take::new(&bytes), 3).as_ref(), Some(history));
        assert_eq!(SiteHistory::take(&mut Take::new(&bytes), 2), None, "a site that is not there");
        assert_eq!(SiteHistory::take(&mut Take::new(&bytes[..bytes.len() - 1]), 3), None, "cut");
    }
}
