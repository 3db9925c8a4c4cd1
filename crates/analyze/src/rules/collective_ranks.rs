//! The events of a job gathered by rank, as the rule for collectives wants them.
//!
//! Must never make an object of an event: a million of them pass through here.

use std::collections::BTreeMap;
use std::sync::Arc;

use stormlog_model::{Event, Head, Metadata};

use super::collective::{CollectiveConfig, CollectiveInterval, MarkerSearch, RankView, attribute};
use crate::sample::Sample;

/// Samples and markers of each rank, the largest world that was claimed, and the first moment.
#[derive(Debug)]
pub struct CollectiveRanks {
    ranks: BTreeMap<u64, RankEvents>,
    world_size: u64,
    first_ns: u64,
    search: MarkerSearch,
    last_metadata: Option<(Arc<Metadata>, bool)>,
    last_head: Option<(Arc<Head>, Arc<str>)>,
}

#[derive(Debug, Default)]
struct RankEvents {
    samples: Vec<Sample>,
    markers: Vec<u64>,
    /// The session of each sample that has one, by its time.
    sessions: Vec<(u64, Arc<str>)>,
}

impl Default for CollectiveRanks {
    fn default() -> Self {
        CollectiveRanks {
            ranks: BTreeMap::new(),
            world_size: 0,
            first_ns: u64::MAX,
            search: MarkerSearch::default(),
            last_metadata: None,
            last_head: None,
        }
    }
}

impl CollectiveRanks {
    /// Takes an event.
    pub fn observe(&mut self, event: &Event) {
        let is_marker = self.names_a_collective(event);
        let identity = &event.head.identity;
        let sample = Sample::of(event).map(|sample| (sample, self.session_of(event)));
        self.add(identity.rank, identity.world_size, event.timestamp_ns, is_marker, sample);
    }

    /// Takes the parts of an event: whether it names a collective, and the sample it is, with its session where it has one.
    pub fn add(
        &mut self,
        rank: u64,
        world_size: u64,
        at_ns: u64,
        is_marker: bool,
        sample: Option<(Sample, Option<Arc<str>>)>,
    ) {
        self.first_ns = self.first_ns.min(at_ns);
        self.world_size = self.world_size.max(world_size);
        let rank = self.ranks.entry(rank).or_default();
        if is_marker {
            rank.markers.push(at_ns);
        }
        if let Some((sample, session)) = sample.filter(|(sample, _)| sample.gap().is_some()) {
            rank.samples.push(sample);
            rank.sessions.extend(session.map(|session| (at_ns, session)));
        }
    }

    /// The intervals of every rank, in the order of ranks and time.
    pub fn attribute(&mut self, config: &CollectiveConfig) -> Vec<CollectiveInterval> {
        for rank in self.ranks.values_mut() {
            rank.samples.sort_by_key(|sample| sample.at_ns);
            rank.markers.sort_unstable();
        }
        let world_size = if self.world_size == 0 { self.ranks.len().max(1) as u64 } else { self.world_size };
        let views: Vec<RankView<'_>> = self
            .ranks
            .iter()
            .filter(|(_, rank)| !rank.samples.is_empty())
            .map(|(number, rank)| RankView {
                rank: *number,
                samples: &rank.samples,
                markers: &rank.markers,
                phases: None,
            })
            .collect();
        attribute(&views, world_size, self.first_ns, config)
    }

    /// The session of a rank's sample at a moment, the last of several.
    pub fn session_at(&self, rank: u64, at_ns: u64) -> Option<&str> {
        let sessions = &self.ranks.get(&rank)?.sessions;
        sessions.iter().rev().find(|(at, _)| *at == at_ns).map(|(_, session)| &**session)
    }

    fn session_of(&mut self, event: &Event) -> Option<Arc<str>> {
        match &self.last_head {
            Some((head, session)) if Arc::ptr_eq(head, &event.head) => Some(Arc::clone(session)),
            _ if event.head.session_id.is_empty() => None,
            _ => {
                let session: Arc<str> = event.head.session_id.as_str().into();
                self.last_head = Some((Arc::clone(&event.head), Arc::clone(&session)));
                Some(session)
            }
        }
    }

    /// Whether a text in an event does. Events that follow each other mostly share their metadata: it is searched once.
    fn names_a_collective(&mut self, event: &Event) -> bool {
        let in_metadata = match &self.last_metadata {
            Some((metadata, found)) if Arc::ptr_eq(metadata, &event.metadata) => *found,
            _ => {
                let found = event.metadata.map.values().any(|value| self.search.value(value));
                self.last_metadata = Some((Arc::clone(&event.metadata), found));
                found
            }
        };
        in_metadata
            || self.search.text(&event.head.event_type)
            || event.context.as_deref().is_some_and(|context| self.search.text(context))
    }
}
