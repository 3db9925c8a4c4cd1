//! The JSON of PyTorch's profiler, event by event: only what memory needs is kept. Must read a file of any size without holding its text.

use std::cell::Cell;
use std::fmt;
use std::io::{self, Read};

use rustc_hash::FxHashMap;
use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

use crate::input::Kept;

/// Bytes of one event, or of what comes before and after the events: the parser holds a text until its end.
const MOST_IN_EVENT: u64 = 16 << 20;

/// Room for the stretches of a thread when its first comes.
const LEAST_SLICES: usize = 4;

/// A stretch of code on a thread, from `start` to `end` in microseconds.
pub(crate) struct Slice {
    pub(crate) start: f64,
    pub(crate) end: f64,
    pub(crate) name: u32,
    pub(crate) called_from: u32,
    pub(crate) is_python: bool,
}

/// A block that came (`bytes` > 0) or went.
pub(crate) struct Change {
    pub(crate) thread: u64,
    pub(crate) time: f64,
    pub(crate) bytes: i64,
    pub(crate) address: u64,
    pub(crate) device_type: i64,
    pub(crate) device: i64,
    pub(crate) allocated: Option<u64>,
    pub(crate) reserved: Option<u64>,
}

/// What is kept of a trace.
#[derive(Default)]
pub(crate) struct Trace {
    pub(crate) base_ns: u64,
    pub(crate) pid: u32,
    pub(crate) names: Names,
    pub(crate) slices: FxHashMap<u64, Vec<Slice>>,
    pub(crate) changes: Vec<Change>,
    pub(crate) kept: Kept,
}

/// Texts by number; 0 is the empty one.
#[derive(Default)]
pub(crate) struct Names {
    known: FxHashMap<String, u32>,
    list: Vec<String>,
}

impl Names {
    fn id(&mut self, text: String, kept: &mut Kept) -> u32 {
        if text.is_empty() {
            return 0;
        }
        let next = self.list.len() as u32 + 1;
        if let Some(id) = self.known.get(&text) {
            return *id;
        }
        // Once as a key and once in the list.
        kept.add(2 * (size_of::<(String, u32)>() + text.len()));
        self.known.insert(text.clone(), next);
        self.list.push(text);
        next
    }

    pub(crate) fn text(&self, id: u32) -> &str {
        (id as usize).checked_sub(1).and_then(|id| self.list.get(id)).map_or("", String::as_str)
    }
}

#[derive(Deserialize)]
struct Event {
    #[serde(default)]
    ph: String,
    #[serde(default)]
    cat: String,
    #[serde(default)]
    name: String,
    #[serde(default)]
    pid: Number,
    #[serde(default)]
    tid: Number,
    #[serde(default)]
    ts: Number,
    #[serde(default)]
    dur: Number,
    #[serde(default)]
    args: Args,
}

#[derive(Deserialize, Default)]
struct Args {
    #[serde(rename = "Bytes", default)]
    bytes: Number,
    #[serde(rename = "Addr", default)]
    address: Number,
    #[serde(rename = "Device Type", default)]
    device_type: Number,
    #[serde(rename = "Device Id", default)]
    device: Number,
    #[serde(rename = "Total Allocated", default)]
    allocated: Number,
    #[serde(rename = "Total Reserved", default)]
    reserved: Number,
    #[serde(rename = "CallFrom", default)]
    called_from: Option<String>,
}

/// A number, or anything else, which is none. Some threads have names for numbers, and old traces numbers in quotes.
#[derive(Default, Clone, Copy)]
struct Number {
    whole: Option<i64>,
    real: Option<f64>,
}

impl<'de> Deserialize<'de> for Number {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = serde_json::Value::deserialize(deserializer)?;
        let text = value.as_str();
        let whole = value.as_i64().or_else(|| value.as_u64().map(|number| number as i64));
        Ok(Number {
            whole: whole.or_else(|| text.and_then(|text| text.parse().ok())),
            real: value.as_f64().or_else(|| text.and_then(|text| text.parse().ok())),
        })
    }
}

/// Reads a trace. One that takes too much memory ends early, with [`Trace::kept`] full.
pub(crate) fn read(reader: impl Read) -> serde_json::Result<Trace> {
    let mut trace = Trace::default();
    let since = Cell::new(0);
    let mut json = serde_json::Deserializer::from_reader(Bounded { reader, since: &since });
    let read = json.deserialize_map(Top { trace: &mut trace, since: &since }).and_then(|()| json.end());
    if since.get() > MOST_IN_EVENT {
        trace.kept.add(usize::MAX);
    }
    match read {
        Err(_) if trace.kept.is_full() => Ok(trace),
        read => read.map(|()| trace),
    }
}

/// Fails where one event takes too many bytes.
struct Bounded<'a, R> {
    reader: R,
    /// Bytes since the last event.
    since: &'a Cell<u64>,
}

impl<R: Read> Read for Bounded<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.reader.read(buffer)?;
        self.since.set(self.since.get() + read as u64);
        match self.since.get() > MOST_IN_EVENT {
            true => Err(io::Error::other("an event is too large")),
            false => Ok(read),
        }
    }
}

struct Top<'a> {
    trace: &'a mut Trace,
    since: &'a Cell<u64>,
}

impl<'de> Visitor<'de> for Top<'_> {
    type Value = ();

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("a trace")
    }

    fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<(), M::Error> {
        while let Some(key) = map.next_key::<String>()? {
            self.since.set(0);
            match key.as_str() {
                "traceEvents" => map.next_value_seed(Events { trace: self.trace, since: self.since })?,
                "baseTimeNanoseconds" => {
                    let base = map.next_value::<Number>()?.whole;
                    self.trace.base_ns = base.and_then(|base| base.try_into().ok()).unwrap_or(0);
                }
                _ => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        Ok(())
    }
}

struct Events<'a> {
    trace: &'a mut Trace,
    since: &'a Cell<u64>,
}

impl<'de> DeserializeSeed<'de> for Events<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for Events<'_> {
    type Value = ();

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("a list of events")
    }

    fn visit_seq<S: SeqAccess<'de>>(self, mut list: S) -> Result<(), S::Error> {
        while let Some(event) = list.next_element::<Event>()? {
            self.since.set(0);
            self.trace.take(event);
            if self.trace.kept.is_full() {
                return Err(serde::de::Error::custom("more events than are kept"));
            }
        }
        Ok(())
    }
}

impl Trace {
    fn take(&mut self, event: Event) {
        let Some(thread) = event.tid.whole.map(|thread| thread as u64) else { return };
        let Some(time) = event.ts.real.filter(|time| time.is_finite()) else { return };
        let args = event.args;
        if event.name == "[memory]" {
            let (Some(bytes), Some(address)) = (args.bytes.whole, args.address.whole) else { return };
            let total = |number: Number| number.whole.and_then(|number| u64::try_from(number).ok());
            self.pid = event.pid.whole.and_then(|pid| pid.try_into().ok()).unwrap_or(self.pid);
            self.kept.add(size_of::<Change>());
            self.changes.push(Change {
                thread,
                time,
                bytes,
                address: address as u64,
                device_type: args.device_type.whole.unwrap_or(0),
                device: args.device.whole.unwrap_or(0),
                allocated: total(args.allocated),
                reserved: total(args.reserved),
            });
        } else if event.ph == "X" && ["cpu_op", "python_function", "user_annotation"].contains(&&*event.cat) {
            let end = time + event.dur.real.filter(|duration| *duration >= 0.0).unwrap_or(0.0);
            let is_python = event.cat == "python_function";
            let name = self.names.id(event.name, &mut self.kept);
            let called_from = self.names.id(args.called_from.unwrap_or_default(), &mut self.kept);
            self.kept.add(size_of::<Slice>());
            self.slices
                .entry(thread)
                .or_insert_with(|| {
                    self.kept.add_list::<Slice>(LEAST_SLICES);
                    Vec::with_capacity(LEAST_SLICES)
                })
                .push(Slice { start: time, end, name, called_from, is_python });
        }
    }
}
