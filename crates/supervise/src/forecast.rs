//! How long the program has until its memory limit: the readings that a forecast is made from, and the warnings.
//!
//! The limit is the nearest of the cgroups above the program, or the machine's memory where none limits it; and the
//! address space limit, where the program was given one. Pressure (PSI) makes a forecast more urgent, never makes one.
//! Must cost a system call or two a look, and not look more often than it can learn from.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use stormlog_alert::alerts::AlertEvent;
use stormlog_alert::predict::{Forecast, PredictConfig, Predictor, Reading};
use stormlog_collect::Roots;
use stormlog_collect::cgroup::{MemoryCgroup, UsageReader};
use stormlog_collect::host::HostReader;
use stormlog_collect::pressure::{Pressure, PressureReader};
use stormlog_postmortem::verdict::Growth;

/// More often tells nothing new.
const SHORTEST_INTERVAL: Duration = Duration::from_millis(50);
/// Limits, page cache and pressure change slowly.
const SLOW_INTERVAL: Duration = Duration::from_secs(1);
/// The limit is near from here on, in percent of it.
const NEAR_PERCENT: u64 = 90;
/// A program that holds less of the machine than one part in this many does not fill it: others do.
const OWN_SHARE: u64 = 10;
/// How sure a forecast must be to be told as a fact about the end.
const BELIEVED: f64 = 0.5;
/// For so long a forecast that ended still tells how memory grew.
const GROWTH_HOLDS: Duration = Duration::from_secs(5);
/// PSI from which on memory is what the program waits for.
const PRESSED_PERCENT: f64 = 10.0;

/// What a limit is held against.
enum Against {
    Cgroup { cgroup: MemoryCgroup, usage: Option<UsageReader>, level: PathBuf },
    Host(HostReader),
    AddressSpace,
}

struct Limit {
    against: Against,
    name: String,
    bytes: Option<u64>,
    reclaimable: Option<u64>,
    predictor: Predictor,
}

/// The forecasts of one run.
pub(crate) struct Forecasts {
    limits: Vec<Limit>,
    pressure: Option<PressureReader>,
    stall: Pressure,
    interval: Duration,
    next: Instant,
    next_slow: Instant,
    /// The memory limit itself: bytes and, at the last look, what was used of it.
    pub(crate) memory: (Option<u64>, Option<u64>),
    growth: Option<(Instant, Growth)>,
}

impl Forecasts {
    /// For the program `pid`; `limit_as` is its address space limit.
    pub(crate) fn of(pid: u32, limit_as: Option<u64>, interval: Duration) -> Self {
        let interval = interval.max(SHORTEST_INTERVAL);
        let config = PredictConfig::for_interval(u64::try_from(interval.as_nanos()).unwrap_or(u64::MAX));
        let predictor = || Predictor::new(config);
        let cgroup = MemoryCgroup::of(pid).ok();
        let pressure = cgroup
            .as_ref()
            .and_then(|cgroup| PressureReader::open(&cgroup.directory.join("memory.pressure")).ok());
        let pressure = pressure.or_else(|| PressureReader::host(&Roots::default()).ok());
        let mut limits = Vec::new();
        limits.extend(memory_limit(cgroup).map(|(against, name, bytes)| Limit {
            against,
            name,
            bytes: Some(bytes),
            reclaimable: None,
            predictor: predictor(),
        }));
        let memory = (limits.first().and_then(|limit| limit.bytes), None);
        limits.extend(limit_as.map(|bytes| Limit {
            against: Against::AddressSpace,
            name: "address space, RLIMIT_AS".to_owned(),
            bytes: Some(bytes),
            reclaimable: None,
            predictor: predictor(),
        }));
        let now = Instant::now();
        let stall = Pressure::default();
        Forecasts { limits, pressure, stall, interval, next: now, next_slow: now, memory, growth: None }
    }

    /// Looks, when it is time; the warnings that begin or end now. `held` is what all processes of the program have
    /// resident, `vms` its address space.
    pub(crate) fn look(&mut self, now: Instant, now_ns: u64, held: u64, vms: Option<u64>) -> Vec<AlertEvent> {
        if now < self.next {
            return Vec::new();
        }
        self.next = now + self.interval;
        let is_slow_turn = now >= self.next_slow;
        if is_slow_turn {
            self.next_slow = now + SLOW_INTERVAL;
            let read = self.pressure.as_mut().and_then(|reader| reader.pressure().ok().flatten());
            self.stall = read.unwrap_or_default();
        }
        let mut alerts = Vec::new();
        for limit in &mut self.limits {
            if is_slow_turn {
                limit.refresh();
            }
            let is_host = matches!(limit.against, Against::Host(_));
            let is_others = is_host && limit.bytes.is_none_or(|bytes| held < bytes / OWN_SHARE);
            if is_others && !is_slow_turn {
                // The machine's memory is the longest of these reads, and not this program's to fill.
                continue;
            }
            let used = limit.used(vms);
            if !matches!(limit.against, Against::AddressSpace) {
                self.memory = (limit.bytes, used);
            }
            if is_others {
                continue;
            }
            let [some, full] =
                [self.stall.some, self.stall.full].map(|stall| stall.and_then(|stall| stall.avg10));
            let reading = Reading {
                timestamp_ns: now_ns,
                used_bytes: used,
                limit_bytes: limit.bytes,
                reclaimable_bytes: limit.reclaimable,
                psi_some_avg10: some,
                psi_full_avg10: full,
            };
            for mut alert in limit.predictor.observe(&reading) {
                alert.context = format!("{} [{}]", alert.context, limit.name);
                alert.metadata.insert("limit_source".to_owned(), limit.name.as_str().into());
                // What `analyze` judges pressure by.
                let stalls =
                    [("psi_some_avg10", reading.psi_some_avg10), ("psi_full_avg10", reading.psi_full_avg10)];
                let known =
                    stalls.into_iter().filter_map(|(key, share)| Some((key.to_owned(), share?.into())));
                alert.metadata.extend(known);
                alerts.push(alert);
            }
            let believed = |found: &Forecast| found.confidence >= BELIEVED;
            if let Some(found) = limit.predictor.forecast().filter(believed) {
                let Forecast { bytes_per_second, confidence, since_ns, .. } = found;
                self.growth = Some((now, Growth { bytes_per_second, confidence, since_ns }));
            }
        }
        alerts
    }

    /// How much of the last ten seconds some tasks, and all of them, waited for memory, in percent.
    pub(crate) fn stalls(&self) -> [Option<f64>; 2] {
        [self.stall.some, self.stall.full].map(|stall| stall.and_then(|stall| stall.avg10))
    }

    /// Whether memory is short: little is left of the limit, or tasks wait for memory.
    pub(crate) fn is_pressed(&self) -> bool {
        let is_near = match self.memory {
            (Some(limit), Some(used)) => used / 100 >= limit / 100 * NEAR_PERCENT / 100,
            _ => false,
        };
        is_near || self.stall.some.and_then(|stall| stall.avg10).is_some_and(|avg10| avg10 >= PRESSED_PERCENT)
    }

    /// How memory grew at the end, where a forecast saw it. A dying program gives its memory back before it is gone, so
    /// what was believed a moment ago counts.
    pub(crate) fn growth(&self) -> Option<Growth> {
        self.growth.filter(|(at, _)| at.elapsed() <= GROWTH_HOLDS).map(|(_, growth)| growth)
    }
}

/// The nearest limit of the memory itself.
fn memory_limit(cgroup: Option<MemoryCgroup>) -> Option<(Against, String, u64)> {
    let mut host = HostReader::open().ok()?;
    let total = host.memory().ok()?.total?;
    let nearest = cgroup.and_then(|cgroup| {
        let limit = cgroup.read().effective_limit.filter(|limit| limit.bytes < total)?;
        let level = limit.directory?;
        let name = format!("cgroup {}", level.strip_prefix(&cgroup.mount).unwrap_or(&level).display());
        let usage = MemoryCgroup { directory: level.clone(), ..cgroup.clone() }.usage_reader().ok();
        Some((Against::Cgroup { cgroup, usage, level }, name, limit.bytes))
    });
    nearest.or_else(|| Some((Against::Host(host), "this machine's memory".to_owned(), total)))
}

impl Limit {
    /// What changes slowly: the limit itself, and the page cache below it that the kernel would drop first.
    fn refresh(&mut self) {
        if let Against::Cgroup { cgroup, level, .. } = &self.against {
            let memory = cgroup.read();
            let level = memory.levels.iter().find(|found| found.directory == *level);
            self.bytes = level.and_then(|level| level.limit?.bytes());
            self.reclaimable = level.and_then(|level| level.stat.inactive_file);
        }
    }

    fn used(&mut self, vms: Option<u64>) -> Option<u64> {
        match &mut self.against {
            Against::Cgroup { usage, .. } => usage.as_mut()?.usage().ok(),
            Against::Host(host) => {
                let memory = host.memory().ok()?;
                memory.total?.checked_sub(memory.available?)
            }
            Against::AddressSpace => vms,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_has_a_limit_and_uses_some_of_it() {
        let mut forecasts = Forecasts::of(std::process::id(), Some(1 << 40), Duration::from_millis(100));
        assert_eq!(forecasts.limits.len(), 2);
        assert!(forecasts.look(Instant::now(), 1, 0, Some(1 << 20)).is_empty());
        let (limit, used) = forecasts.memory;
        assert!(used.unwrap() > 0 && used.unwrap() <= limit.unwrap());
        assert_eq!(forecasts.growth(), None);
    }

    #[test]
    fn an_address_space_that_fills_up_is_foretold() {
        let mut forecasts = Forecasts::of(std::process::id(), Some(1 << 30), Duration::from_millis(100));
        let mut alerts = Vec::new();
        for step in 0..200u64 {
            forecasts.next = Instant::now();
            let vms = (512 << 20) + step * (2 << 20);
            alerts.extend(forecasts.look(Instant::now(), step * 100_000_000, 0, Some(vms)));
        }
        let ours = alerts.iter().find(|alert| alert.context.contains("RLIMIT_AS")).unwrap();
        assert_eq!(ours.metadata["limit_source"], "address space, RLIMIT_AS");
        assert!(ours.metadata["seconds_to_limit"].as_f64().unwrap() > 0.0);
    }
}
