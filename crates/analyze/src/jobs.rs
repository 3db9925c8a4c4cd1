//! Which sessions belong to one job, and the ranks of a job as the rank rules want them.
//!
//! A session with several ranks is a job of its own; sessions of one rank each belong together when they say so (the same job
//! name and world size, more than one rank). A rank that was restarted counts once, by its latest session, which is said.
//!
//! Host and device memory are kept apart: the sessions of one rank that started last may be of the host in some ranks and of the
//! device in others, and their bytes have nothing to do with each other.

use std::borrow::Cow;

use rustc_hash::FxHashMap;

use crate::phases::PhaseIndex;
use crate::recording::{RankRecord, Recording, Stream};
use crate::rules::collective::RankView;
use crate::rules::outliers::MemoryKind;
use crate::rules::ranks::Job;
use crate::sample::Sample;

/// One rank in one memory, ready for the rules.
#[derive(Debug)]
pub(crate) struct JobRank<'a> {
    pub(crate) record: &'a RankRecord,
    pub(crate) phases: &'a PhaseIndex,
    pub(crate) session_id: &'a str,
    /// In time order, whatever mix of devices and processes they came from.
    pub(crate) samples: Cow<'a, [Sample]>,
    pub(crate) markers: Cow<'a, [u64]>,
    /// The part of them with known device use; the same slice when that is all.
    pub(crate) used: Cow<'a, [Sample]>,
}

/// The ranks of one job.
#[derive(Debug)]
pub(crate) struct JobRecord<'a> {
    pub(crate) job_id: Option<String>,
    /// The memory that its ranks are compared by over time: that of more ranks, of devices where both are of equally many.
    pub(crate) memory: MemoryKind,
    /// Its ranks in that memory.
    pub(crate) ranks: Vec<JobRank<'a>>,
    /// Its ranks in the other one.
    pub(crate) in_other_memory: Vec<JobRank<'a>>,
    pub(crate) world_size: u64,
    pub(crate) first_ns: u64,
    pub(crate) notes: Vec<String>,
}

/// Session index, rank index.
type Member = (usize, usize);

/// The jobs in a recording; `phases` are the indices of every session's ranks.
pub(crate) fn jobs<'a>(recording: &'a Recording, phases: &'a [Vec<PhaseIndex>]) -> Vec<JobRecord<'a>> {
    let mut groups: Vec<Vec<Member>> = Vec::new();
    let mut named: FxHashMap<(Option<&str>, u64), usize> = FxHashMap::default();
    for (number, session) in recording.sessions.iter().enumerate() {
        let members = (0..session.ranks.len()).map(|rank| (number, rank));
        let [only] = session.ranks.as_slice() else {
            groups.push(members.collect());
            continue;
        };
        let identity = &only.head.identity;
        if identity.world_size <= 1 {
            groups.push(members.collect());
            continue;
        }
        let key = (identity.job_id.as_deref(), identity.world_size);
        match named.get(&key) {
            Some(group) => groups[*group].extend(members),
            None => {
                named.insert(key, groups.len());
                groups.push(members.collect());
            }
        }
    }
    groups.into_iter().map(|members| job(recording, phases, members)).collect()
}

fn is_of(stream: &Stream, memory: MemoryKind) -> bool {
    stream.is_host() == (memory == MemoryKind::Host)
}

/// Each rank that has this memory once, by its latest session, and the number of earlier sessions that were left out.
fn latest(recording: &Recording, members: &[Member], memory: MemoryKind) -> (Vec<Member>, usize) {
    let session = |member: &Member| &recording.sessions[member.0];
    let rank = |member: &Member| &session(member).ranks[member.1];
    let number = |member: &Member| rank(member).head.identity.rank;
    let has_memory = |member: &&Member| rank(member).streams.iter().any(|stream| is_of(stream, memory));
    let mut latest: Vec<Member> = members.iter().filter(has_memory).copied().collect();
    latest.sort_by_key(|member| (number(member), std::cmp::Reverse(session(member).span_ns)));
    let mut count = 0;
    latest.dedup_by(|other, kept| {
        let is_same_rank = number(other) == number(kept);
        // Two recordings of one process are not a restart.
        let is_one_process = session(other).process.is_some_and(|of| session(kept).process == Some(of));
        count += usize::from(is_same_rank && !is_one_process);
        is_same_rank
    });
    (latest, count)
}

fn job<'a>(recording: &'a Recording, phases: &'a [Vec<PhaseIndex>], members: Vec<Member>) -> JobRecord<'a> {
    let session = |member: &Member| &recording.sessions[member.0];
    let [host, device] = MemoryKind::ALL.map(|memory| (memory, latest(recording, &members, memory)));
    let (main, other) = if device.1.0.len() >= host.1.0.len() { (device, host) } else { (host, device) };
    let (memory, (members, count)) = main;
    let mut notes = Vec::new();
    if count > 0 {
        notes.push(format!(
            "{count} earlier sessions of restarted ranks are left out of the comparison of ranks."
        ));
    }
    let is_whole = members.iter().all(|member| session(member).sample_count == session(member).event_count);
    if !is_whole {
        notes.push("Ignored non-sample events during cross-rank analysis.".to_owned());
    }
    let first_ns = members.iter().map(|member| session(member).span_ns.0).min().unwrap_or(0);
    let records = |members: &[Member], memory: MemoryKind| -> Vec<JobRank<'a>> {
        let record = |&(number, rank): &Member| {
            let session = &recording.sessions[number];
            rank_record(&session.ranks[rank], &phases[number][rank], &session.session_id, memory)
        };
        members.iter().map(record).collect()
    };
    let ranks = records(&members, memory);
    if ranks.iter().any(|rank| rank.used.len() < rank.samples.len()) {
        notes.push("Ignored samples without device-used memory during cross-rank analysis.".to_owned());
    }
    let head = ranks.first().map(|rank| &rank.record.head.identity);
    JobRecord {
        job_id: head.and_then(|identity| identity.job_id.clone()),
        memory,
        world_size: ranks.iter().map(|rank| rank.record.head.identity.world_size).max().unwrap_or(1),
        ranks,
        in_other_memory: records(&other.1.0, other.0),
        first_ns,
        notes,
    }
}

fn rank_record<'a>(
    record: &'a RankRecord,
    phases: &'a PhaseIndex,
    session_id: &'a str,
    memory: MemoryKind,
) -> JobRank<'a> {
    let streams: Vec<&Stream> = record.streams.iter().filter(|stream| is_of(stream, memory)).collect();
    let samples: Cow<'a, [Sample]> = match streams.as_slice() {
        [only] if only.samples.is_sorted_by_key(|sample| sample.at_ns) => Cow::Borrowed(&only.samples),
        streams => {
            let mut all: Vec<Sample> =
                streams.iter().flat_map(|stream| stream.samples.iter().copied()).collect();
            all.sort_by_key(|sample| sample.at_ns);
            Cow::Owned(all)
        }
    };
    let markers = if record.markers.is_sorted() {
        Cow::Borrowed(record.markers.as_slice())
    } else {
        let mut sorted = record.markers.clone();
        sorted.sort_unstable();
        Cow::Owned(sorted)
    };
    let used = if samples.iter().all(|sample| sample.used().is_some()) {
        samples.clone()
    } else {
        Cow::Owned(samples.iter().copied().filter(|sample| sample.used().is_some()).collect())
    };
    JobRank { record, phases, session_id, samples, markers, used }
}

impl JobRecord<'_> {
    /// Its ranks by memory: the ranks of one are compared with each other.
    pub(crate) fn by_memory(&self) -> [(MemoryKind, &[JobRank<'_>]); 2] {
        [(self.memory, &self.ranks), (self.memory.other(), &self.in_other_memory)]
    }

    /// For collective attribution: every sample.
    pub(crate) fn views(&self) -> Vec<RankView<'_>> {
        self.ranks.iter().map(|rank| view(rank, &rank.samples)).collect()
    }

    /// For the comparison of ranks: samples with device use.
    pub(crate) fn as_job(&self) -> Job<'_> {
        let stated = self.ranks.iter().map(|rank| rank.record.head.sampling_interval_ms).max().unwrap_or(0);
        Job {
            job_id: self.job_id.clone(),
            declared_world_size: self.world_size,
            ranks: self.ranks.iter().map(|rank| view(rank, &rank.used)).collect(),
            stated_interval_ns: stated.saturating_mul(1_000_000),
            notes: self.notes.clone(),
        }
    }

    /// Whether all ranks ran on one machine.
    pub(crate) fn has_one_clock(&self) -> bool {
        let mut hosts = self.ranks.iter().map(|rank| rank.record.head.host.as_str());
        let first = hosts.next().unwrap_or("unknown");
        first != "unknown" && hosts.all(|host| host == first)
    }
}

fn view<'a>(rank: &'a JobRank<'_>, samples: &'a [Sample]) -> RankView<'a> {
    RankView {
        rank: rank.record.head.identity.rank,
        samples,
        markers: &rank.markers,
        phases: (!rank.phases.is_empty()).then_some(rank.phases),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{finish, on_rank, sample};

    #[test]
    fn sessions_of_one_job_are_one_job_and_lone_ones_are_alone() {
        let ranks = (0..4).flat_map(|rank| (0..3).map(move |at| on_rank(sample(at, 10), rank, 4)));
        let recording = finish(ranks.chain([sample(1, 5)]));
        let phases: Vec<Vec<PhaseIndex>> = recording
            .sessions
            .iter()
            .map(|session| vec![PhaseIndex::default(); session.ranks.len()])
            .collect();
        let found = jobs(&recording, &phases);
        assert_eq!(found.iter().map(|job| job.ranks.len()).collect::<Vec<_>>(), [4, 1]);
        assert!(found[0].has_one_clock());
        assert_eq!(found[0].as_job().declared_world_size, 4);
    }
}
