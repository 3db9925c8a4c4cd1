//! The native tracker under `MemoryTracker` and `CPUMemoryTracker`.
//!
//! The GIL is released for every call that may wait for the tracker's locks or a disk; the tracking thread takes
//! it only to ask a collector written in Python and to deliver an alert, and not at all once it is shutting down.

use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyType};
use stormlog_model::{Counter, Event, SCHEMA_LATEST, to_record};
use stormlog_postmortem::bundle::BundleWriter;
use stormlog_store::recording::{Recorder, RecorderConfig};
use stormlog_store::sink::{Diagnostics, Sink};
use stormlog_store::{Format, Output};
use stormlog_track::{
    DeviceSample, HostSource, Listener, NewEvent, Outlets, Sampled, Source, Tracker as Inner,
};

use crate::error::raise;
use crate::oom;
use crate::phases::object;
use crate::record::{Foreign, free_form, object_to_python};
use crate::sample::{Reading, Sample};
use crate::session::Session;
use crate::sink::sink_config;
use crate::tracker_settings::TrackerSettings;
use crate::tracking_event::Spelling;

/// The times of a timeline, and for each counter its values at them.
type Timeline = (Vec<f64>, Vec<Vec<Option<u64>>>);

/// Samples in the background.
#[pyclass(frozen, module = "stormlog._native.tracking")]
struct Tracker {
    tracker: Inner,
    spelling: Spelling,
    // Taken when the tracker is made, so that writing a bundle near the limit needs no more.
    writer: Option<Mutex<BundleWriter>>,
}

#[pymethods]
impl Tracker {
    #[new]
    #[pyo3(signature = (settings, event_class, sink, recording_dir, collector, on_alert))]
    fn new(
        py: Python<'_>,
        settings: &TrackerSettings,
        event_class: Py<PyType>,
        sink: Option<&Bound<'_, PyAny>>,
        recording_dir: Option<PathBuf>,
        collector: Option<Py<PyAny>>,
        on_alert: Option<Py<PyAny>>,
    ) -> PyResult<Self> {
        let TrackerSettings { config, backend, retention } = settings;
        let config = config.clone();
        let sink = sink.map(sink_config).transpose()?;
        let spelling = Spelling::new(event_class, backend, &config.metadata);
        let host = config.session.host.clone();
        let writer = (*retention).map(|retention| Mutex::new(BundleWriter::new(retention)));
        let source: Box<dyn Source> = match collector {
            Some(call) => Box::new(PythonSource { call }),
            None => Box::new(HostSource::open().map_err(raise)?),
        };
        let listener = on_alert.map(|call| -> Box<dyn Listener> {
            Box::new(PythonListener { call, spelling: spelling.clone() })
        });
        let tracker = py.detach(|| -> PyResult<Inner> {
            let recorder = recording_dir.map(|directory| {
                Recorder::create(&directory, config.session.clone(), &RecorderConfig::default())
            });
            let recorder = recorder.transpose().map_err(raise)?;
            let sink = sink.map(|sink| Sink::open(sink, host)).transpose().map_err(raise)?;
            Inner::new(config, source, Outlets::new(sink, recorder), listener).map_err(raise)
        })?;
        Ok(Tracker { tracker, spelling, writer })
    }

    /// Takes the first sample and starts the thread.
    fn start(&self, py: Python<'_>) -> PyResult<()> {
        py.detach(|| self.tracker.start()).map_err(raise)
    }

    /// Ends the session; false when the thread did not stop in this many seconds.
    fn stop(&self, py: Python<'_>, longest: f64) -> bool {
        let longest = Duration::try_from_secs_f64(longest).unwrap_or_default();
        py.detach(|| self.tracker.stop(longest))
    }

    /// Whether the thread runs in this process.
    fn is_running(&self) -> bool {
        self.tracker.is_running()
    }

    /// Adds an event; `metadata` is JSON text.
    fn add_event(
        &self,
        py: Python<'_>,
        event_type: &str,
        change: Option<i64>,
        context: Option<&str>,
        metadata: Option<&str>,
        sample: Option<Sample>,
    ) -> PyResult<()> {
        let metadata = metadata.map(object).transpose()?.unwrap_or_default();
        let sample = sample.map(DeviceSample::from);
        py.detach(|| self.tracker.add(NewEvent { event_type, change, context, metadata, sample }));
        Ok(())
    }

    /// The events kept, as objects of the class the tracker was made with.
    fn events<'py>(
        &self,
        py: Python<'py>,
        event_types: Option<Vec<String>>,
        last: Option<usize>,
        since: Option<f64>,
    ) -> PyResult<Bound<'py, PyList>> {
        let wanted = |event: &Event| {
            event_types.as_ref().is_none_or(|types| types.contains(&event.head.event_type))
                && since.is_none_or(|since| event.timestamp_ns as f64 / 1e9 >= since)
        };
        let events = py.detach(|| self.tracker.events(wanted, last));
        let list = PyList::empty(py);
        for event in &events {
            list.append(self.spelling.event(py, event)?)?;
        }
        Ok(list)
    }

    /// The last events kept, as records of the newest schema.
    fn records<'py>(&self, py: Python<'py>, last: Option<usize>) -> PyResult<Bound<'py, PyList>> {
        let list = PyList::empty(py);
        for event in py.detach(|| self.tracker.events(|_| true, last)) {
            list.append(object_to_python(py, &to_record(&event, SCHEMA_LATEST).map_err(raise)?)?)?;
        }
        Ok(list)
    }

    /// How many of the events kept are younger than that time.
    fn count_since(&self, py: Python<'_>, since: f64) -> usize {
        py.detach(|| self.tracker.count(|event| event.timestamp_ns as f64 / 1e9 > since))
    }

    /// Times, and the counters allocated, reserved, used, free, total at each.
    fn timeline(&self, py: Python<'_>, interval: f64) -> PyResult<Timeline> {
        let points = py
            .detach(|| self.tracker.timeline(interval))
            .map_err(|error| PyValueError::new_err(error.to_string()))?;
        let wanted = [Counter::Allocated, Counter::Reserved, Counter::Used, Counter::Free, Counter::Total];
        let columns =
            wanted.map(|counter| points.iter().map(|(_, counters)| counters.get(counter)).collect()).to_vec();
        Ok((points.iter().map(|(at, _)| *at).collect(), columns))
    }

    /// The numbers so far.
    fn statistics<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let (seen, health, sink) =
            py.detach(|| (self.tracker.statistics(), self.tracker.health(), self.tracker.sink_diagnostics()));
        let mut keys = stormlog_model::Record::new();
        health.write(&mut keys);
        let dict = object_to_python(py, &keys)?;
        let seconds = |ns: Option<u64>| ns.map(|ns| ns as f64 / 1e9);
        dict.set_item("peak_memory", seen.peak_memory)?;
        dict.set_item("lowest_memory", seen.lowest_memory)?;
        dict.set_item("mean_memory", seen.mean_memory)?;
        dict.set_item("peak_device_used", seen.peak_device_used)?;
        dict.set_item("total_allocations", seen.total_allocations)?;
        dict.set_item("total_deallocations", seen.total_deallocations)?;
        dict.set_item("total_allocation_bytes", seen.total_allocation_bytes)?;
        dict.set_item("total_deallocation_bytes", seen.total_deallocation_bytes)?;
        dict.set_item("alert_count", seen.alert_count)?;
        dict.set_item("sample_count", seen.sample_count)?;
        dict.set_item("tracking_start_time", seconds(seen.started_at_ns))?;
        dict.set_item("last_memory_check", seconds(seen.last_check_ns))?;
        dict.set_item("retained_events", seen.retained_events)?;
        dict.set_item("dropped_events", seen.dropped_events)?;
        dict.set_item("last_sample", seen.last_sample.map(Sample::from))?;
        dict.set_item("total_bytes", seen.total_bytes)?;
        dict.set_item("seconds_to_limit", seen.seconds_to_limit)?;
        dict.set_item("forecast_seconds", seen.forecast_seconds)?;
        let count = |read: fn(&Diagnostics) -> u64| sink.as_ref().map_or(0, read);
        dict.set_item("rollover_count", count(|it| it.rollover_count))?;
        dict.set_item("pruned_segment_count", count(|it| it.pruned_segment_count))?;
        dict.set_item("pruned_bytes", count(|it| it.pruned_bytes))?;
        dict.set_item("final_retained_files", count(|it| it.final_retained_files))?;
        dict.set_item("final_retained_bytes", count(|it| it.final_retained_bytes))?;
        Ok(dict)
    }

    /// One reading now: the sample and what went wrong.
    fn sample_now(&self, py: Python<'_>) -> Reading {
        py.detach(|| self.tracker.sample_now()).into()
    }

    fn set_threshold(&self, py: Python<'_>, name: &str, value: f64) -> PyResult<()> {
        let set = py.detach(|| self.tracker.set_threshold(name, value));
        set.map_err(raise)
    }

    fn clear(&self, py: Python<'_>) {
        py.detach(|| self.tracker.clear());
    }

    fn session(&self, py: Python<'_>) -> Option<Session> {
        py.detach(|| self.tracker.session()).map(Session::from)
    }

    /// What went wrong with the files since the last time.
    fn take_warnings(&self, py: Python<'_>) -> Vec<String> {
        py.detach(|| self.tracker.take_warnings())
    }

    /// Writes the events kept to a file; false when there are none.
    fn export(&self, py: Python<'_>, path: PathBuf, format: &str) -> PyResult<bool> {
        let known = Format::of_name(format);
        let format = known.ok_or_else(|| PyValueError::new_err(format!("Unsupported format: {format}")))?;
        py.detach(|| -> PyResult<bool> {
            let events = self.tracker.events(|_| true, None);
            if events.is_empty() {
                return Ok(false);
            }
            let mut output = Output::create(&path, format, SCHEMA_LATEST).map_err(raise)?;
            for event in &events {
                output.write(event).map_err(raise)?.map_err(raise)?;
            }
            output.finish().map_err(raise)?;
            Ok(true)
        })
    }

    /// Writes an OOM bundle of the events kept for it; `None` when none are kept.
    #[pyo3(signature = (
        *, root, backend, reason, cause, exception, context, custom_metadata, system, held_by=Vec::new(), tries=Vec::new()
    ))]
    #[expect(
        clippy::too_many_arguments,
        reason = "keywords of a Python method, one for each part of a bundle"
    )]
    fn dump(
        &self,
        py: Python<'_>,
        root: PathBuf,
        backend: String,
        reason: String,
        cause: Option<String>,
        exception: (String, String, String),
        context: Option<String>,
        custom_metadata: &Bound<'_, PyAny>,
        system: &Bound<'_, PyAny>,
        held_by: Vec<oom::Holder>,
        tries: Vec<String>,
    ) -> PyResult<Option<PathBuf>> {
        let Some(writer) = &self.writer else { return Ok(None) };
        let (custom_metadata, system) =
            (free_form(custom_metadata, Foreign::Text)?, free_form(system, Foreign::Text)?);
        let given = oom::BundleInput {
            root,
            backend,
            reason,
            cause,
            exception,
            context,
            custom_metadata,
            system,
            held_by,
            tries,
        };
        py.detach(|| {
            let session = self.tracker.session();
            let mut writer = writer.lock().unwrap_or_else(PoisonError::into_inner);
            let written =
                self.tracker.with_flight(|events| oom::write(&mut writer, &given, session.as_ref(), events));
            written.transpose()
        })
    }
}

/// A collector written in Python: a callable that gives a `Reading`.
struct PythonSource {
    call: Py<PyAny>,
}

impl Source for PythonSource {
    fn sample(&mut self) -> Sampled {
        let asked = Python::try_attach(|py| {
            let answer = self.call.bind(py).call0().map_err(|error| error.to_string())?;
            answer.extract::<Reading>().map_err(|error| PyErr::from(error).to_string())
        });
        match asked {
            Some(Ok(reading)) => reading.into(),
            Some(Err(error)) => Sampled { error: Some(error), ..Sampled::default() },
            None => {
                Sampled { error: Some("the interpreter is shutting down".to_owned()), ..Sampled::default() }
            }
        }
    }
}

/// Delivers alerts to a callable.
struct PythonListener {
    call: Py<PyAny>,
    spelling: Spelling,
}

impl Listener for PythonListener {
    fn alert(&self, event: &Event) {
        let _ = Python::try_attach(|py| {
            let called = self.spelling.event(py, event).and_then(|event| self.call.bind(py).call1((event,)));
            if let Err(error) = called {
                // The callable catches what callbacks raise; no caller is left for any other exception.
                error.write_unraisable(py, None);
            }
        });
    }
}

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<Tracker>()
}
