//! One rank of a living run: the sums of its processes over time, and where they grow to.
//!
//! The samples of its processes come process by process and are put in order before they are added up, so that the highest sum of a minute is one that
//! there was. Must never count a process that has ended.

use std::collections::BTreeMap;

use crate::forecast::Growth;
use crate::history::History;
use crate::session::{Sample, SampleSubject};
use crate::window::Window;

/// Samples so close together are of one look at all processes.
pub(crate) const ONE_LOOK_NS: u64 = 20_000_000;

/// What is left beside what is held, by memory. `None` is unknown.
#[derive(Debug, Default)]
pub(crate) struct FreeMemory {
    pub(crate) host: Option<u64>,
    pub(crate) devices: BTreeMap<i64, u64>,
}

/// The sums of a rank.
#[derive(Debug)]
pub(crate) struct Rank {
    interval_ms: u64,
    resident: BTreeMap<u32, u64>,
    pub(crate) resident_window: Window,
    pub(crate) resident_history: History,
    pub(crate) device_history: History,
    pub(crate) resident_growth: Growth,
    /// By what and device.
    pub(crate) device_windows: BTreeMap<(&'static str, i64), Window>,
    held: BTreeMap<(i64, u32), u64>,
    pub(crate) device_growth: BTreeMap<i64, Growth>,
    last_ns: u64,
}

impl Rank {
    /// Nothing seen yet.
    pub(crate) fn new(interval_ms: u64) -> Self {
        Rank {
            interval_ms,
            resident: BTreeMap::new(),
            resident_window: Window::default(),
            resident_history: History::default(),
            device_history: History::default(),
            resident_growth: Growth::every(interval_ms),
            device_windows: BTreeMap::new(),
            held: BTreeMap::new(),
            device_growth: BTreeMap::new(),
            last_ns: 0,
        }
    }

    /// Takes in samples of its processes, in the order of their times.
    pub(crate) fn take(&mut self, samples: &[Sample], room: &FreeMemory) {
        for (at, sample) in samples.iter().enumerate() {
            // A reader that was late for one process does not go back in time for it.
            let at_ns = sample.at_ns.max(self.last_ns);
            self.last_ns = at_ns;
            match sample.what {
                SampleSubject::Resident => {
                    self.resident.insert(sample.pid, sample.value);
                    let is_last_of_look = samples[at + 1..]
                        .iter()
                        .find(|next| next.what == SampleSubject::Resident)
                        .is_none_or(|next| next.at_ns.saturating_sub(sample.at_ns) > ONE_LOOK_NS);
                    if is_last_of_look {
                        let sum = self.resident_sum();
                        self.resident_window.push(at_ns, sum);
                        self.resident_history.push(at_ns, sum);
                        self.resident_growth.observe(at_ns, sum, room.host);
                    }
                }
                SampleSubject::Gone => self.forget(sample.pid),
                SampleSubject::Allocated(device) => {
                    self.window("allocated", device).push(at_ns, sample.value)
                }
                SampleSubject::Reserved(device) => self.window("reserved", device).push(at_ns, sample.value),
                SampleSubject::DeviceProcess(device) => {
                    self.held.insert((device, sample.pid), sample.value);
                    let held = self.held.range((device, 0)..=(device, u32::MAX)).map(|(_, held)| held).sum();
                    self.window("device_process", device).push(at_ns, held);
                    self.device_history.push(at_ns, self.held.values().sum());
                    let interval_ms = self.interval_ms;
                    let growth = self.device_growth.entry(device);
                    let growth = growth.or_insert_with(|| Growth::every(interval_ms));
                    growth.observe(at_ns, held, room.devices.get(&device).copied());
                }
            }
        }
    }

    /// A process has ended.
    pub(crate) fn forget(&mut self, pid: u32) {
        self.resident.remove(&pid);
        self.held.retain(|(_, holder), _| *holder != pid);
    }

    /// The highest sums of the last minute.
    pub(crate) fn windows(&mut self, now_ns: u64) -> Vec<(&'static str, Option<i64>, u64)> {
        let resident = self.resident_window.most(now_ns).map(|most| ("resident", None, most));
        let devices = self.device_windows.iter_mut();
        let devices =
            devices.filter_map(|((what, device), window)| Some((*what, Some(*device), window.most(now_ns)?)));
        resident.into_iter().chain(devices).collect()
    }

    /// What its processes have resident together.
    pub(crate) fn resident_sum(&self) -> u64 {
        self.resident.values().fold(0, |sum, rss| sum.saturating_add(*rss))
    }

    fn window(&mut self, what: &'static str, device: i64) -> &mut Window {
        self.device_windows.entry((what, device)).or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn resident(at_ns: u64, pid: u32, value: u64) -> Sample {
        Sample { at_ns, pid, rank: 0, what: SampleSubject::Resident, value }
    }

    #[test]
    fn highest_sum_is_one_that_there_was() {
        let mut rank = Rank::new(100);
        let room = FreeMemory::default();
        let samples = [
            resident(SECOND, 1, 10),
            resident(SECOND + 1000, 2, 90),
            resident(2 * SECOND, 1, 80),
            resident(2 * SECOND + 1000, 2, 5),
        ];
        rank.take(&samples, &room);
        assert_eq!(
            rank.resident_window.most(2 * SECOND),
            Some(100),
            "not 170: they peaked at different times"
        );
        rank.forget(1);
        assert_eq!(rank.resident_sum(), 5);
    }

    #[test]
    fn growth_towards_a_limit_is_forecast_and_a_flat_line_is_not() {
        let mut growing = Rank::new(100);
        let mut flat = Rank::new(100);
        for tenth in 0..600u64 {
            let at = SECOND + tenth * SECOND / 10;
            let held = (100 << 20) + tenth * (1 << 20);
            let room = FreeMemory { host: Some((1 << 30) - held), ..FreeMemory::default() };
            growing.take(&[resident(at, 1, held)], &room);
            flat.take(&[resident(at, 1, 100 << 20)], &room);
        }
        let found = growing.resident_growth.forecast();
        let seconds = found.map(|found| found.seconds_left).unwrap_or_default();
        assert!((20.0..50.0).contains(&seconds), "324 MiB at 10 MiB/s: {seconds}");
        let rate = growing.resident_growth.rate().unwrap_or_default();
        assert!((rate / f64::from(10 << 20) - 1.0).abs() < 0.1, "{rate}");
        assert_eq!((flat.resident_growth.forecast(), flat.resident_growth.rate()), (None, Some(0.0)));
    }
}
