//! What a tracker knows: the rules that turn a sample into events, alerts and statistics.
//!
//! Reads no clock and calls nothing: times are passed in, and events to report are returned.

use std::sync::Arc;

use serde_json::Value;
use stormlog_alert::alerts::{AlertEvent, AlertSample, Alerts};
use stormlog_collect::{DeviceSample, retry_delay_ns};
use stormlog_model::{Counter, Counters, Event, Problem, Record, SessionStatus, SessionSummary, Support};

use crate::health::{Health, HealthStatus};
use crate::history::History;
use crate::{
    Config, Forecasts, LimitReading, Outlets, Sampled, SessionEvents, Statistics, Wording, compat_text,
};

/// An event that is not a sample: a start, a phase, an error.
#[derive(Debug, Clone, Default)]
pub struct NewEvent<'a> {
    /// Its kind.
    pub event_type: &'a str,
    /// The change it reports.
    pub change: Option<i64>,
    /// Its sentence.
    pub context: Option<&'a str>,
    /// What it adds to the metadata.
    pub metadata: Record,
    /// The numbers it carries; the last known ones otherwise.
    pub sample: Option<DeviceSample>,
}

pub(crate) struct State {
    pub(crate) config: Config,
    pub(crate) history: History,
    pub(crate) flight: History,
    pub(crate) outlets: Outlets,
    pub(crate) alerts: Alerts,
    forecasts: Forecasts,
    pub(crate) health: Health,
    pub(crate) session: SessionSummary,
    stats: Statistics,
    events: SessionEvents,
    sample_text: Arc<str>,
    last: Option<DeviceSample>,
    /// The bytes whose changes are followed, at the last sample.
    last_followed: Option<u64>,
}

impl State {
    pub(crate) fn new(config: Config, outlets: Outlets) -> Result<Self, Problem> {
        let session = config.session.clone();
        let events = SessionEvents::new(
            &session,
            &config.identity,
            &config.collector,
            config.interval,
            config.metadata.clone(),
        )?;
        let mut state = State {
            events,
            history: History::new(config.max_events),
            flight: History::new(0),
            outlets,
            alerts: Alerts::new(config.thresholds),
            forecasts: Forecasts::every(config.interval),
            health: Health::default(),
            session,
            stats: Statistics { total_bytes: config.total_bytes, ..Statistics::default() },
            sample_text: compat_text::sample(config.wording, &[]),
            last: None,
            last_followed: None,
            config,
        };
        state.refresh_health();
        let like = state.events.event("start", 0, 0, Counters::UNKNOWN, None, Record::new());
        state.flight = History::ready(state.config.flight_events, &like);
        Ok(state)
    }

    /// One answer of the source. Returns the events to report.
    pub(crate) fn observe(&mut self, sampled: Sampled, now_ns: u64) -> Vec<Event> {
        let Some(sample) = sampled.sample else {
            let error = sampled.error.unwrap_or_else(|| "Collector unavailable".to_owned());
            self.fail(error, now_ns);
            return Vec::new();
        };
        let is_partial = !sampled.partial_fields.is_empty();
        if is_partial || self.health.status != HealthStatus::Healthy {
            self.recover(sampled.partial_fields, sampled.error, &sample, now_ns);
        }
        self.events.set_facts(&sampled.facts);
        self.stats.sample_count += 1;
        self.stats.last_check_ns = Some(now_ns);
        self.last = Some(sample);
        self.stats.total_bytes = sample.total.or(self.stats.total_bytes);
        self.stats.peak_device_used = self.stats.peak_device_used.max(sample.used);

        let has_allocator = self.events.supports(Support::AllocatorAllocated);
        let allocated = sample.allocated.filter(|_| has_allocator);
        let is_cpu = self.config.wording == Wording::Cpu;
        // Of a process that is seen from outside it is the resident memory that grows and shrinks.
        let followed = allocated.or(sample.used.filter(|_| is_cpu && !has_allocator));
        if let Some(bytes) = followed {
            self.stats.followed(bytes);
        }
        // The first sample is where counting starts: what was there before is not an allocation of this session.
        let change = followed.zip(self.last_followed).map(|(now, before)| now.wrapping_sub(before) as i64);
        self.last_followed = followed.or(self.last_followed);
        // Only a change of what an allocator holds is one in an event.
        let of_allocator = |change: Option<i64>| change.filter(|_| has_allocator);
        let allocator_change = of_allocator(if is_cpu { change.or(Some(0)) } else { change });

        let counters = self.counters(&sample);
        if let Some(bytes) = followed.filter(|bytes| self.stats.peak_memory.is_none_or(|peak| *bytes > peak))
        {
            self.stats.peak_memory = Some(bytes);
            self.keep(
                "peak",
                sample.device_id,
                with(counters, allocator_change),
                compat_text::peak(bytes, self.config.wording),
                now_ns,
            );
        }
        if let Some(change) = change.filter(|change| *change != 0) {
            self.stats.changed(change);
            let kind = if change > 0 { "allocation" } else { "deallocation" };
            let text = compat_text::change(change, self.config.wording);
            self.keep(kind, sample.device_id, with(counters, of_allocator(Some(change))), text, now_ns);
        }
        let alerts = match self.config.alerts {
            true => self.check(&sample, change, &sampled.limits, now_ns),
            false => Vec::new(),
        };
        let change = of_allocator(if is_cpu { Some(0) } else { change });
        let text = if is_partial {
            compat_text::sample(self.config.wording, &self.health.partial_fields)
        } else {
            Arc::clone(&self.sample_text)
        };
        self.keep("sample", sample.device_id, with(counters, change), text, now_ns);
        alerts
    }

    /// An event from outside. Returned when it is to be reported.
    pub(crate) fn add(&mut self, new: NewEvent<'_>, now_ns: u64) -> Option<Event> {
        let sample = new.sample.or(self.last);
        let device_id = sample.map_or(self.fallback_device(), |sample| sample.device_id);
        let has_allocator = self.events.supports(Support::AllocatorAllocated);
        let mut counters = sample.map_or(Counters::UNKNOWN, |sample| self.counters(&sample));
        counters.set_change(new.change.filter(|_| has_allocator));
        let context = new.context.map(Arc::from);
        let event = self.events.event(new.event_type, now_ns, device_id, counters, context, new.metadata);
        let is_alert = matches!(new.event_type, "warning" | "critical" | "error");
        self.push(event.clone());
        is_alert.then(|| {
            self.stats.alert_count += 1;
            event
        })
    }

    /// The start: with the numbers of the first sample, so that a reader need not guess them.
    pub(crate) fn begin(&mut self, sampled: &Sampled, now_ns: u64) {
        self.stats.started_at_ns = Some(now_ns);
        let context = compat_text::started(self.config.wording);
        let start = NewEvent {
            event_type: "start",
            change: Some(0),
            context: Some(context),
            sample: sampled.sample,
            ..NewEvent::default()
        };
        self.add(start, now_ns);
    }

    /// The end in that state: open alerts, the stop, the files.
    pub(crate) fn end(&mut self, status: SessionStatus, now_ns: u64) {
        for alert in self.alerts.finish(now_ns) {
            self.add_alert(alert, None, None);
        }
        let context = compat_text::stopped(self.config.wording);
        let stop =
            NewEvent { event_type: "stop", change: Some(0), context: Some(context), ..NewEvent::default() };
        self.add(stop, now_ns);
        let closed = self.outlets.close(status, now_ns);
        let is_whole = closed && self.session.status == SessionStatus::Running;
        self.session.status = if is_whole { status } else { SessionStatus::Incomplete };
        self.session.ended_at_ns = i64::try_from(now_ns).ok();
    }

    pub(crate) fn statistics(&self) -> Statistics {
        let is_readable = self.health.status != HealthStatus::Unhealthy;
        Statistics {
            retained_events: self.history.len() as u64,
            dropped_events: self.history.dropped(),
            last_sample: self.last.filter(|_| is_readable),
            seconds_to_limit: self.forecasts.nearest().map(|forecast| forecast.seconds_left),
            forecast_seconds: self.forecasts.warning().map(|forecast| forecast.seconds_left),
            ..self.stats
        }
    }

    pub(crate) fn clear(&mut self) {
        self.history.clear();
        self.stats.clear();
    }

    fn fail(&mut self, error: String, now_ns: u64) {
        let was = std::mem::take(&mut self.health);
        self.health = was.failed(error.clone(), now_ns);
        self.refresh_health();
        if was.status != HealthStatus::Healthy || !self.config.says_health {
            return;
        }
        let pause = retry_delay_ns(self.health.consecutive_failures) as f64 / 1e9;
        let metadata = Record::from_iter([
            ("collector_transition".to_owned(), Value::from("degraded")),
            ("collector_degraded_from".to_owned(), was.status.as_str().into()),
            ("collector_degradation_reason".to_owned(), error.into()),
            ("collector_retry_delay_s".to_owned(), pause.into()),
        ]);
        let context = "Collector unavailable; telemetry paused until recovery.";
        self.add_plain("collector_degraded", context, metadata, None, now_ns);
    }

    fn recover(&mut self, partial: Vec<String>, error: Option<String>, sample: &DeviceSample, now_ns: u64) {
        let is_partial = !partial.is_empty();
        let was = std::mem::replace(&mut self.health, Health::sampled(partial, error.clone()));
        if self.health == was {
            return;
        }
        self.refresh_health();
        let from = was.status.as_str();
        if !self.config.says_health {
            return;
        }
        if is_partial && was.status == HealthStatus::Healthy {
            let metadata = Record::from_iter([
                ("collector_transition".to_owned(), Value::from("degraded")),
                ("collector_degraded_from".to_owned(), from.into()),
                ("collector_degradation_reason".to_owned(), error.into()),
            ]);
            let context = "Collector degraded; telemetry is partial.";
            self.add_plain("collector_degraded", context, metadata, Some(*sample), now_ns);
        } else if !is_partial && was.status != HealthStatus::Healthy {
            let metadata = Record::from_iter([
                ("collector_transition".to_owned(), Value::from("recovered")),
                ("collector_recovered_from".to_owned(), from.into()),
                ("collector_previous_error".to_owned(), was.last_error.into()),
                ("collector_previous_failure_count".to_owned(), was.consecutive_failures.into()),
            ]);
            let context = "Collector recovered; full telemetry sampling resumed.";
            self.add_plain("collector_recovered", context, metadata, Some(*sample), now_ns);
        }
    }

    fn check(
        &mut self,
        sample: &DeviceSample,
        change: Option<i64>,
        limits: &[LimitReading],
        now_ns: u64,
    ) -> Vec<Event> {
        let can = |support| self.events.supports(support);
        let usage = if can(Support::AllocatorAllocated) { sample.allocated } else { sample.used };
        let splits = can(Support::FragmentationAnalysis) && can(Support::AllocatorInactive);
        let seen = AlertSample {
            timestamp_ns: now_ns,
            usage_bytes: usage,
            total_bytes: self.stats.total_bytes,
            change_bytes: change,
            inactive_bytes: sample.inactive.filter(|_| splits),
            reserved_bytes: sample.reserved,
        };
        let mut found = self.alerts.observe(&seen);
        let own = [self.reading(sample)];
        for reading in if limits.is_empty() { &own } else { limits } {
            found.extend(self.forecasts.observe(reading, now_ns));
        }
        found.into_iter().filter_map(|alert| self.add_alert(alert, change, Some(*sample))).collect()
    }

    /// What is used of a device that is its own limit; of the host the use of all processes, since it is the host's memory
    /// that runs out.
    fn reading(&self, sample: &DeviceSample) -> LimitReading {
        let total = self.stats.total_bytes;
        let by_all = total.zip(sample.free).map(|(total, free)| total.saturating_sub(free));
        let is_host = sample.device_id == crate::HOST_DEVICE;
        let used = if is_host { by_all.or(sample.used) } else { sample.used };
        LimitReading { used, limit: total, ..LimitReading::default() }
    }

    fn add_alert(
        &mut self,
        alert: AlertEvent,
        change: Option<i64>,
        sample: Option<DeviceSample>,
    ) -> Option<Event> {
        let new = NewEvent {
            event_type: alert.event_type,
            change,
            context: Some(&alert.context),
            metadata: alert.metadata,
            sample,
        };
        self.add(new, alert.timestamp_ns)
    }

    fn add_plain(
        &mut self,
        event_type: &str,
        context: &str,
        metadata: Record,
        sample: Option<DeviceSample>,
        now_ns: u64,
    ) {
        self.add(NewEvent { event_type, change: Some(0), context: Some(context), metadata, sample }, now_ns);
    }

    fn keep(&mut self, event_type: &str, device_id: i64, counters: Counters, context: Arc<str>, now_ns: u64) {
        let event = self.events.event(event_type, now_ns, device_id, counters, Some(context), Record::new());
        self.push(event);
    }

    fn push(&mut self, event: Event) {
        if !self.outlets.append(&event) {
            self.session.status = SessionStatus::Incomplete;
        }
        self.flight.push(event.clone());
        self.history.push(event);
    }

    /// The figures of a sample, in the form of an event's fields.
    fn counters(&self, sample: &DeviceSample) -> Counters {
        let mut counters = self.events.counters(sample);
        // 0.4.3 gives status events the device's size even where the sample lacks it.
        let supports_total = self.events.supports(Support::DeviceTotal);
        let is_partial =
            self.health.partial_fields.iter().any(|field| field == Counter::Total.field().name());
        if supports_total && !is_partial && !counters.is_known(Counter::Total) {
            counters.set(Counter::Total, self.stats.total_bytes);
        }
        counters
    }

    /// Has the events that follow say how the source is.
    fn refresh_health(&mut self) {
        if self.config.says_health {
            let mut status = Record::new();
            self.health.write(&mut status);
            self.events.set_status(status);
        }
    }

    fn fallback_device(&self) -> i64 {
        if self.config.wording == Wording::Cpu { crate::HOST_DEVICE } else { 0 }
    }
}

fn with(mut counters: Counters, change: Option<i64>) -> Counters {
    counters.set_change(change);
    counters
}
