//! What is not a known shape, written out within limits; and the outermost value: what goes where.

use serde_json::{Map, Value};

use super::build::{Builder, Items, Result};
use super::keys::Key;
use super::shapes::MAX_DEVICES;
use super::value::Val;
use crate::error::SnapshotError;
use crate::intern::{FrameId, StrId};
use crate::snapshot::{Segment, Snapshot};

pub(super) const MAX_DEPTH: u32 = 64;
/// Nodes of one unknown value written out; shared parts count each time, so bombs end here.
pub(super) const MAX_WRITTEN: u32 = 100_000;

impl Builder {
    pub(super) fn key_text(&self, key: Val) -> String {
        match key {
            Val::Str(id) => self.tables.text(StrId(id)).to_owned(),
            Val::Int(value) => value.to_string(),
            other => other.kind().to_owned(),
        }
    }

    pub(super) fn json(&self, value: Val) -> Result<Value> {
        self.write(value, MAX_DEPTH, &mut MAX_WRITTEN.clone())
    }

    /// An unknown value, written out.
    pub(super) fn write(&self, value: Val, depth: u32, budget: &mut u32) -> Result<Value> {
        let Some(depth) = depth.checked_sub(1) else {
            return Err(SnapshotError::TooDeep { limit: MAX_DEPTH });
        };
        *budget = budget
            .checked_sub(1)
            .ok_or(SnapshotError::TooMany { what: "parts of one value", limit: u64::from(MAX_WRITTEN) })?;
        Ok(match value {
            Val::None => Value::Null,
            Val::Bool(value) => value.into(),
            Val::Int(value) => value.into(),
            Val::Unsigned(value) => value.into(),
            Val::Float(value) => value.into(),
            Val::Str(id) => self.tables.text(StrId(id)).into(),
            Val::Pair(a, b) => vec![a, b].into(),
            Val::FreshList(_) => Value::Array(Vec::new()),
            Val::FreshDict(_) => Value::Object(Map::new()),
            Val::Frame(id) => {
                let frame = self.tables.frame(FrameId(id));
                serde_json::json!({
                    "name": self.tables.text(frame.name), "filename": self.tables.text(frame.filename), "line": frame.line
                })
            }
            Val::Stack { id, .. } => {
                let frames = self.tables.raw_stack(id).to_vec();
                Value::Array(
                    frames
                        .into_iter()
                        .map(|f| self.write(Val::Frame(f), depth, budget))
                        .collect::<Result<_>>()?,
                )
            }
            Val::List(id) | Val::Tuple(id) => match self.lists.get(id as usize) {
                Some(Items::Mixed(items)) => Value::Array(
                    items.iter().map(|&item| self.write(item, depth, budget)).collect::<Result<_>>()?,
                ),
                _ => "trace events".into(),
            },
            Val::Dict(id) => {
                let mut map = Map::new();
                for pair in self.dicts.get(id as usize).map_or(&[][..], Vec::as_slice).chunks_exact(2) {
                    if let &[key, value] = pair {
                        map.insert(self.key_text(key), self.write(value, depth, budget)?);
                    }
                }
                Value::Object(map)
            }
            Val::Events(..) | Val::Block(_) | Val::Segment(_) | Val::Annotation => value.kind().into(),
        })
    }
}

/// The outermost value: what goes where.
impl Builder {
    pub(super) fn finish(mut self, root: Val, bytes: u64) -> Result<Snapshot> {
        let mut snapshot = Snapshot::default();
        let mut traces = (Vec::new(), Vec::new());
        match root {
            Val::List(_) => snapshot.segments = self.segment_list(root)?,
            Val::Dict(id) => {
                let pairs = self.dicts.get(id as usize).cloned().unwrap_or_default();
                self.gather(&pairs);
                if self.present & (Key::Segments.bit() | Key::DeviceTraces.bit()) == 0 {
                    return Err(SnapshotError::Shape { found: self.shape_of(&pairs) });
                }
                let unknown = std::mem::take(&mut self.unknown);
                if let Some(value) = self.take(Key::DeviceTraces) {
                    traces.0 = self.traces(value)?;
                }
                if let Some(value) = self.take(Key::HostTraces) {
                    traces.1 = self.traces(value)?;
                }
                let values =
                    [Key::Segments, Key::HostSegments, Key::AllocatorSettings].map(|key| self.take(key));
                self.take(Key::ExternalAnnotations);
                let [segments, host_segments, settings] = values;
                if let Some(value) = segments {
                    snapshot.segments = self.segment_list(value)?;
                }
                if let Some(value) = host_segments {
                    snapshot.host_segments = self.segment_list(value)?;
                }
                if let Some(value) = settings
                    && let Value::Object(map) = self.json(value)?
                {
                    snapshot.settings = map;
                }
                for (key, value) in unknown {
                    snapshot.extra.insert(self.key_text(key), self.json(value)?);
                }
            }
            other => return Err(SnapshotError::Shape { found: other.kind().to_owned() }),
        }
        if traces.0.len() > MAX_DEVICES as usize {
            return Err(SnapshotError::TooMany { what: "devices", limit: u64::from(MAX_DEVICES) });
        }
        (snapshot.devices, snapshot.host_traces) = traces;
        snapshot.tables = self.tables;
        snapshot.events = self.events;
        snapshot.blocks = self.blocks;
        snapshot.annotations = self.annotations;
        snapshot.contexts = self.contexts;
        snapshot.actions = self.actions;
        snapshot.action_names = self.action_names;
        snapshot.bytes = bytes;
        Ok(snapshot)
    }

    fn shape_of(&self, pairs: &[Val]) -> String {
        let keys: Vec<String> = pairs.chunks_exact(2).take(8).map(|pair| self.key_text(pair[0])).collect();
        format!("a dictionary with the keys {keys:?}")
    }

    fn segment_list(&self, value: Val) -> Result<Vec<Segment>> {
        let items: &[Val] = match value {
            Val::FreshList(_) => &[],
            Val::List(id) => match self.lists.get(id as usize) {
                Some(Items::Mixed(items)) => items,
                _ => return Err(self.wrong(Key::Segments, "a list of segments", value)),
            },
            other => return Err(self.wrong(Key::Segments, "a list of segments", other)),
        };
        items
            .iter()
            .map(|&item| match item {
                Val::Segment(index) => self
                    .segments
                    .get(index as usize)
                    .cloned()
                    .ok_or_else(|| self.wrong(Key::Segments, "a list of segments", item)),
                other => Err(self.wrong(Key::Segments, "a list of segments", other)),
            })
            .collect()
    }

    fn traces(&self, value: Val) -> Result<Vec<std::ops::Range<u32>>> {
        let items: &[Val] = match value {
            Val::FreshList(_) => &[],
            Val::List(id) => match self.lists.get(id as usize) {
                Some(Items::Mixed(items)) => items,
                _ => return Err(self.wrong(Key::DeviceTraces, "a list of traces", value)),
            },
            other => return Err(self.wrong(Key::DeviceTraces, "a list of traces", other)),
        };
        items
            .iter()
            .map(|&item| match item {
                Val::FreshList(_) => Ok(0..0),
                Val::List(id) => match self.lists.get(id as usize) {
                    Some(Items::Events(start, end)) => Ok(*start..*end),
                    _ => Err(self.wrong(Key::DeviceTraces, "a list of events", item)),
                },
                other => Err(self.wrong(Key::DeviceTraces, "a list of events", other)),
            })
            .collect()
    }
}
