//! The limits that a process tree grows towards: readings of each, and what is left of the nearest one.
//!
//! The limit of memory is the nearest of the cgroups above the process, or the machine's memory where none limits it;
//! the limit of the address space is watched where the process was given one. Whatever shows, alerts on or forecasts the
//! room of a process gets it from here. Must cost a system call or two a look, and not look more often than asked.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use stormlog_collect::cgroup::{MemoryCgroup, UsageReader};
use stormlog_collect::host::HostReader;
use stormlog_collect::pressure::{Pressure, PressureReader};
use stormlog_collect::{DeviceSample, Roots};

use crate::{HOST_DEVICE, LimitReading};

/// Limits, page cache and pressure change slowly.
const SLOW_INTERVAL: Duration = Duration::from_secs(1);
/// The limit is near from here on, in percent of it.
const NEAR_PERCENT: u64 = 90;
/// A program that holds less of the machine than one part in this many does not fill it: others do.
const OWN_SHARE: u64 = 10;
/// PSI from which on memory is what the program waits for.
const PRESSED_PERCENT: f64 = 10.0;

/// How the limits are looked at.
#[derive(Debug, Clone, Copy)]
pub struct LimitOptions {
    /// The address space limit of the process.
    pub limit_as: Option<u64>,
    /// The shortest time between two looks.
    pub pace: Duration,
    /// Whether pressure and the page cache are read as well, and the machine's memory is followed only while the process
    /// itself fills it. A tracker inside a program leaves both out: it costs least, and warns the program that fills the machine.
    pub is_thorough: bool,
}

/// What a limit is held against.
#[derive(Debug)]
enum LimitedAmount {
    /// The level of a cgroup, alone.
    Cgroup {
        level: MemoryCgroup,
        usage: Option<UsageReader>,
    },
    Host,
    AddressSpace,
}

#[derive(Debug)]
struct Limit {
    against: LimitedAmount,
    source: Arc<str>,
    bytes: Option<u64>,
    reclaimable: Option<u64>,
    used: Option<u64>,
}

/// The limits of one process tree.
#[derive(Debug)]
pub struct MemoryLimits {
    options: LimitOptions,
    limits: Vec<Limit>,
    host: Option<HostReader>,
    /// What the machine can still give, at the last slow look.
    available: Option<u64>,
    pressure: Option<PressureReader>,
    stall: Pressure,
    next: Instant,
    next_slow: Instant,
}

impl MemoryLimits {
    /// Of the process `pid` and its descendants.
    pub fn of(pid: u32, options: LimitOptions) -> Self {
        let cgroup = MemoryCgroup::of(pid).ok();
        let open_pressure = || {
            let own = cgroup.as_ref().map(|cgroup| cgroup.directory.join("memory.pressure"));
            let own = own.and_then(|path| PressureReader::open(&path).ok());
            own.or_else(|| PressureReader::host(&Roots::default()).ok())
        };
        let pressure = options.is_thorough.then(open_pressure).flatten();
        let mut host = HostReader::open().ok();
        let total = host.as_mut().and_then(|host| host.memory().ok()?.total);
        let now = Instant::now();
        let memory = nearest(cgroup.as_ref(), total);
        let address_space = options.limit_as.map(|bytes| Limit {
            against: LimitedAmount::AddressSpace,
            source: "address space, RLIMIT_AS".into(),
            bytes: Some(bytes),
            reclaimable: None,
            used: None,
        });
        MemoryLimits {
            options,
            limits: memory.into_iter().chain(address_space).collect(),
            host,
            available: None,
            pressure,
            stall: Pressure::default(),
            next: now,
            next_slow: now,
        }
    }

    /// Looks, when it is time. `held` is what all processes of the tree have resident, `vms` the address space of its
    /// root. True when there are new readings.
    pub fn look(&mut self, now: Instant, held: u64, vms: Option<u64>) -> bool {
        if now < self.next {
            return false;
        }
        self.next = now + self.options.pace;
        let is_slow_turn = now >= self.next_slow;
        if is_slow_turn {
            self.next_slow = now + SLOW_INTERVAL;
            let read = self.pressure.as_mut().and_then(|reader| reader.pressure().ok().flatten());
            self.stall = read.unwrap_or_default();
        }
        let is_host = |limit: &Limit| matches!(limit.against, LimitedAmount::Host);
        let fills_host = |limit: &Limit| limit.bytes.is_some_and(|bytes| held >= bytes / OWN_SHARE);
        // The machine's memory is the longest of these reads, and often not this program's to fill.
        let follows_host = self.limits.iter().any(|limit| is_host(limit) && fills_host(limit));
        let host = if is_slow_turn || follows_host { self.host.as_mut() } else { None };
        let host = host.and_then(|host| host.memory().ok());
        self.available = host.and_then(|host| host.available).or(self.available.filter(|_| !is_slow_turn));
        for limit in &mut self.limits {
            if is_slow_turn {
                limit.refresh(self.options.is_thorough);
            }
            match &mut limit.against {
                LimitedAmount::Cgroup { usage, .. } => {
                    limit.used = usage.as_mut().and_then(|usage| usage.usage().ok())
                }
                LimitedAmount::AddressSpace => limit.used = vms,
                LimitedAmount::Host => {
                    if let Some(host) = host {
                        limit.used =
                            host.total.zip(host.available).and_then(|(total, left)| total.checked_sub(left));
                    }
                }
            }
        }
        true
    }

    /// The readings of the last look that say how the tree grows towards its limits. `held` as there.
    pub fn readings(&self, held: u64) -> Vec<LimitReading> {
        let [psi_some_avg10, psi_full_avg10] = self.stalls();
        let reading = |limit: &Limit| LimitReading {
            source: Some(Arc::clone(&limit.source)),
            used: limit.used,
            limit: limit.bytes,
            reclaimable: limit.reclaimable,
            psi_some_avg10,
            psi_full_avg10,
        };
        let is_others = |limit: &Limit| {
            let is_host = self.options.is_thorough && matches!(limit.against, LimitedAmount::Host);
            is_host && limit.bytes.is_none_or(|bytes| held < bytes / OWN_SHARE)
        };
        self.limits.iter().filter(|limit| !is_others(limit)).map(reading).collect()
    }

    /// The reading of the limit of memory, where the tree itself grows towards it. `held` as there.
    pub fn memory_reading(&self, held: u64) -> Option<LimitReading> {
        let source = &self.memory()?.source;
        self.readings(held).into_iter().find(|reading| reading.source.as_ref() == Some(source))
    }

    /// What the limit of memory is of, in words: `cgroup /train`.
    pub fn source(&self) -> Option<&str> {
        Some(&self.memory()?.source)
    }

    /// The limit of memory.
    pub fn total(&self) -> Option<u64> {
        self.memory()?.bytes
    }

    /// What is left below it: of the limit itself, or of the machine where that is less.
    pub fn free(&self) -> Option<u64> {
        let left = self.memory().and_then(|limit| Some(limit.bytes?.saturating_sub(limit.used?)));
        let least = [left, self.available].into_iter().flatten().min();
        least.zip(self.total()).map(|(free, total)| free.min(total)).or(least)
    }

    /// How much of the last ten seconds some tasks, and all of them, waited for memory, in percent.
    pub fn stalls(&self) -> [Option<f64>; 2] {
        [self.stall.some, self.stall.full].map(|stall| stall.and_then(|stall| stall.avg10))
    }

    /// Whether memory is short: little is left of the limit, or tasks wait for memory.
    pub fn is_pressed(&self) -> bool {
        let known = self.memory().and_then(|limit| limit.bytes.zip(limit.used));
        let is_near = known.is_some_and(|(limit, used)| used / 100 >= limit / 100 * NEAR_PERCENT / 100);
        is_near || self.stalls()[0].is_some_and(|avg10| avg10 >= PRESSED_PERCENT)
    }

    fn memory(&self) -> Option<&Limit> {
        self.limits.iter().find(|limit| !matches!(limit.against, LimitedAmount::AddressSpace))
    }
}

/// The host's sample of a process, or several, with that much resident, of a limit with that much left.
pub fn host_sample(rss: Option<u64>, total: Option<u64>, free: Option<u64>) -> DeviceSample {
    // A limit below what is resident was lowered meanwhile or does not count shared pages: all of it is used.
    let total = total.map(|total| rss.map_or(total, |rss| total.max(rss)));
    let free = free.map(|free| total.map_or(free, |total| free.min(total)));
    DeviceSample { device_id: HOST_DEVICE, used: rss, total, free, ..DeviceSample::default() }
}

/// The nearest limit of the memory itself.
fn nearest(cgroup: Option<&MemoryCgroup>, total: Option<u64>) -> Option<Limit> {
    let limited = cgroup.and_then(|cgroup| {
        let limit =
            cgroup.read().effective_limit.filter(|limit| total.is_none_or(|total| limit.bytes < total))?;
        let directory: PathBuf = limit.directory?;
        let name = directory.strip_prefix(&cgroup.mount).unwrap_or(&directory).display().to_string();
        let level = MemoryCgroup { mount: directory.clone(), directory, ..cgroup.clone() };
        let usage = level.usage_reader().ok();
        let source = format!("cgroup /{name}").into();
        let against = LimitedAmount::Cgroup { level, usage };
        Some(Limit { against, source, bytes: Some(limit.bytes), reclaimable: None, used: None })
    });
    limited.or_else(|| {
        let (against, source) = (LimitedAmount::Host, "this machine's memory".into());
        Some(Limit { against, source, bytes: Some(total?), reclaimable: None, used: None })
    })
}

impl Limit {
    /// What changes slowly: the limit itself, and the page cache below it that the kernel would drop first.
    fn refresh(&mut self, is_thorough: bool) {
        let LimitedAmount::Cgroup { level, .. } = &self.against else { return };
        if is_thorough {
            let memory = level.read();
            let own = memory.levels.first();
            self.bytes = own.and_then(|own| own.limit?.bytes());
            self.reclaimable = own.and_then(|own| own.stat.inactive_file);
        } else {
            self.bytes = level.limit().and_then(stormlog_collect::cgroup::Limit::bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(limit_as: Option<u64>, is_thorough: bool) -> LimitOptions {
        LimitOptions { limit_as, pace: Duration::ZERO, is_thorough }
    }

    #[test]
    fn this_machine_has_a_limit_and_uses_some_of_it() {
        for is_thorough in [false, true] {
            let mut limits = MemoryLimits::of(std::process::id(), options(Some(1 << 40), is_thorough));
            assert!(limits.look(Instant::now(), u64::MAX, Some(1 << 20)));
            let readings = limits.readings(u64::MAX);
            assert_eq!(readings.len(), 2);
            assert!(readings[0].used.unwrap() > 0 && readings[0].used.unwrap() <= readings[0].limit.unwrap());
            assert_eq!(readings[1].used, Some(1 << 20));
            assert!(limits.free().unwrap() < limits.total().unwrap());
        }
    }

    #[test]
    fn a_look_before_its_time_reads_nothing() {
        let pace = Duration::from_secs(3600);
        let mut limits = MemoryLimits::of(std::process::id(), LimitOptions { pace, ..options(None, true) });
        let now = Instant::now();
        assert!(limits.look(now, 0, None) && !limits.look(now + pace / 2, 0, None));
        assert!(limits.total().is_some());
    }
}
