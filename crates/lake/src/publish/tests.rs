//! Publications of generated rows: once each, over midnight, after kills and clocks set back, and the layout of the files.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

use stormlog_model::{Counters, Event, Head, Identity, Metadata, Record};

use super::*;
use crate::read::scan;
use crate::row::Role;
use crate::sample_facts::SampleFacts;

const START_NS: i64 = 1_794_806_000_000_000_000;
const SECOND_NS: i64 = 1_000_000_000;

fn session() -> Arc<SessionFacts> {
    let process =
        ProcessFacts { job_id: Arc::from("j"), rank: Some(3), role: Role::Rank, ..ProcessFacts::default() };
    Arc::new(SessionFacts { process: Arc::new(process), session_id: Arc::from("s"), viewpoint: None })
}

fn row(session: &Arc<SessionFacts>, seconds: i64, device_id: i64) -> SampleRow {
    let head = Head {
        session_id: "s".to_owned(),
        event_type: "sample".to_owned(),
        collector: "c".to_owned(),
        sampling_interval_ms: 100,
        pid: 7,
        host: "h".to_owned(),
        identity: Identity::default(),
        device_id,
    };
    let metadata = Metadata { map: Record::new(), capabilities: Default::default(), inferred: true };
    let event = Event {
        timestamp_ns: u64::try_from(START_NS + seconds * SECOND_NS).unwrap(),
        counters: Counters::UNKNOWN,
        context: None,
        head: Arc::new(head),
        metadata: Arc::new(metadata),
    };
    let facts = Arc::new(SampleFacts::default());
    SampleRow { session: Arc::clone(session), event, facts, phase: None, step: None }
}

/// One publication of a session that has been recorded for this many seconds.
fn put(lake: &Path, seconds: i64, is_final: bool) -> u64 {
    let mut publisher = Publisher::new(lake).unwrap();
    let session = session();
    for at in 0..=seconds {
        for device in [-1, 0] {
            publisher.sample(row(&session, at, device)).unwrap();
        }
    }
    publisher.session_end(&session, is_final).unwrap();
    publisher.finish_all().unwrap();
    publisher.report.all_rows()
}

fn keys(lake: &Path) -> Vec<(Option<i64>, Option<i64>)> {
    let mut keys = Vec::new();
    scan(lake, Table::Samples, &["device", "ts"], &mut |batch| {
        keys.extend(
            (0..batch.rows).map(|row| (batch.columns[0].integer(row), batch.columns[1].integer(row))),
        );
        Ok(())
    })
    .unwrap();
    keys
}

#[test]
fn samples_of_a_run_that_grows_are_published_once_each_and_the_newest_later() {
    let place = tempfile::tempdir().unwrap();
    let lake = place.path().join("lake");
    create_lake(&lake).unwrap();
    assert_eq!(put(&lake, 30, false), 21 * 2, "the last ten seconds wait");
    assert_eq!(put(&lake, 30, false), 0);
    assert_eq!(put(&lake, 60, false), 30 * 2);
    assert_eq!(put(&lake, 60, true), 10 * 2);
    assert_eq!(put(&lake, 60, true), 0);
    let mut all = keys(&lake);
    assert_eq!(all.len(), 61 * 2);
    all.sort_unstable();
    all.dedup();
    assert_eq!(all.len(), 61 * 2);
}

/// One publication of a session whose samples have these times.
fn put_times(lake: &Path, seconds: impl Iterator<Item = i64>, is_final: bool) -> u64 {
    let mut publisher = Publisher::new(lake).unwrap();
    let session = session();
    if publisher.wants_session(&session, is_final) {
        seconds.for_each(|at| publisher.sample(row(&session, at, 0)).unwrap());
        publisher.session_end(&session, is_final).unwrap();
    }
    publisher.finish_all().unwrap();
    publisher.report.all_rows()
}

#[test]
fn samples_after_a_clock_was_set_back_are_published_once_each() {
    let place = tempfile::tempdir().unwrap();
    let lake = place.path().join("lake");
    create_lake(&lake).unwrap();
    assert_eq!(put_times(&lake, 0..=100, false), 91);
    // The clock is set back by a minute, and then advances past the moment at which it was set back.
    let then = |to: i64| (0..=100).chain(40..=to);
    assert_eq!(put_times(&lake, then(60), false), 10 + 11, "no sample comes any more that belongs before it");
    assert_eq!(put_times(&lake, then(60), false), 0);
    assert_eq!(put_times(&lake, then(130), false), 70);
    assert_eq!(put_times(&lake, then(130), true), 10);
    assert_eq!(put_times(&lake, then(130), true), 0, "it is whole");
    assert_eq!(keys(&lake).len(), 101 + 91);
    // Thinning puts the recording in order: nothing of it is new.
    assert_eq!(put_times(&lake, 0..=130, false), 0);
    assert_eq!(put_times(&lake, 0..=150, false), 10);
}

#[test]
fn session_over_midnight_is_in_the_partitions_of_both_days_in_order() {
    let place = tempfile::tempdir().unwrap();
    let lake = place.path().join("lake");
    create_lake(&lake).unwrap();
    let seconds = 2 * 86_400;
    let mut publisher = Publisher::new(&lake).unwrap();
    let session = session();
    for at in (0..seconds).step_by(600) {
        publisher.sample(row(&session, at, 0)).unwrap();
    }
    publisher.session_end(&session, true).unwrap();
    publisher.finish_all().unwrap();
    let files = part_files(&lake, Table::Samples, None);
    assert_eq!(files.len(), 3, "two days that begin within a day");
    let all = keys(&lake);
    assert!(all.is_sorted() && all.len() == 288);
}

#[test]
fn published_file_has_the_layout_that_engines_prune_by() {
    use parquet::basic::Compression;
    use parquet::file::reader::{FileReader, SerializedFileReader};
    use parquet::file::serialized_reader::ReadOptionsBuilder;

    const GROUP: i64 = 122_880;
    const PAGE: i64 = 8_192;
    let place = tempfile::tempdir().unwrap();
    let lake = place.path().join("lake");
    create_lake(&lake).unwrap();
    // Two devices, a sample a second, within one day.
    assert_eq!(put(&lake, 65_000, true), 130_002);
    let [file] = part_files(&lake, Table::Samples, None).try_into().unwrap();
    let options = ReadOptionsBuilder::new().with_page_index().build();
    let open = std::fs::File::open(&file.path).unwrap();
    let reader = SerializedFileReader::new_with_options(open, options).unwrap();
    let metadata = reader.metadata();
    let rows: Vec<i64> = metadata.row_groups().iter().map(|group| group.num_rows()).collect();
    assert_eq!(rows, [GROUP, 130_002 - GROUP], "whole groups but for the last");
    for (number, group) in metadata.row_groups().iter().enumerate() {
        let name = |at: i32| group.column(usize::try_from(at).unwrap()).column_path().string();
        let sorted: Vec<(String, bool, bool)> = group
            .sorting_columns()
            .unwrap()
            .iter()
            .map(|column| (name(column.column_idx), column.descending, column.nulls_first))
            .collect();
        let by = |name: &str| (name.to_owned(), false, true);
        assert_eq!(sorted, ["job_id", "rank", "device", "ts"].map(by));
        let index = metadata.page_index_for_row_group(number);
        for (at, column) in group.columns().iter().enumerate() {
            let name = column.column_path().string();
            assert!(
                matches!(column.compression(), Compression::ZSTD(_)),
                "{name}: {:?}",
                column.compression()
            );
            assert!(index.column_index(at).is_some(), "{name} has no column index");
            let pages = index.page_locations(at).unwrap();
            let starts = pages.iter().map(|page| page.first_row_index);
            let ends = starts.clone().skip(1).chain([group.num_rows()]);
            let largest = starts.zip(ends).map(|(start, end)| end - start).max();
            assert!(largest.unwrap() <= PAGE, "{name}: a page of {largest:?} rows");
            let has_bloom = ["session_id", "job_id"].contains(&name.as_str());
            assert_eq!(column.bloom_filter_offset().is_some(), has_bloom, "{name}");
        }
    }
}

/// The findings of a run whose processes ended on two days, as one publication adds them.
fn put_findings(lake: &Path) -> u64 {
    let mut publisher = Publisher::new(lake).unwrap();
    publisher.run = RunFacts { key: Arc::from("s"), is_over: true, ..RunFacts::default() };
    for seconds in [0, 3600, 86_400, 90_000] {
        let finding = stormlog_model::Finding {
            id: "leak.host".to_owned(),
            kind: "leak".to_owned(),
            severity: stormlog_model::Severity::Warning,
            confidence: 1.0,
            title: format!("a leak, seen after {seconds} s"),
            message: None,
            metrics: Record::new(),
            evidence: Vec::new(),
            advice: Vec::new(),
            undecided: false,
            process: None,
            memory: None,
            holder: None,
        };
        let (process, at_ns) = (Arc::clone(&session().process), START_NS + seconds * SECOND_NS);
        let (memory_name, bytes, advice, metrics) = (None, None, None, None);
        let row = FindingRow { process, at_ns, finding, memory_name, bytes, advice, metrics };
        publisher.finding(row).unwrap();
    }
    publisher.finish_all().unwrap();
    publisher.report.all_rows()
}

#[test]
fn findings_of_a_second_day_are_published_after_a_kill_between_the_files_of_two_days() {
    let place = tempfile::tempdir().unwrap();
    let lake = place.path().join("lake");
    create_lake(&lake).unwrap();
    assert_eq!(put_findings(&lake), 4);
    let files = part_files(&lake, Table::Findings, None);
    assert_eq!(files.len(), 2, "a file a day");
    assert_eq!(put_findings(&lake), 0);
    // As a kill leaves it: the file of the first day has its name, the one of the second day never got it.
    std::fs::remove_file(&files[1].path).unwrap();
    assert_eq!(put_findings(&lake), 2, "those of the second day");
    assert_eq!(put_findings(&lake), 0);
    assert_eq!(part_files(&lake, Table::Findings, None).len(), 2);
}

#[test]
fn rows_without_a_clock_are_counted_and_left_out() {
    let place = tempfile::tempdir().unwrap();
    let lake = place.path().join("lake");
    create_lake(&lake).unwrap();
    let mut publisher = Publisher::new(&lake).unwrap();
    let mut early = row(&session(), 0, 0);
    early.event.timestamp_ns = 5;
    publisher.sample(early).unwrap();
    publisher.finish_all().unwrap();
    assert_eq!((publisher.report.timeless, publisher.report.all_rows()), (1, 0));
}

/// One publication of a process that lived for two days.
fn put_process(lake: &Path) -> u64 {
    let mut publisher = Publisher::new(lake).unwrap();
    if publisher.wants_process(&session().process) {
        let row = ProcessRow {
            process: Arc::clone(&session().process),
            started_at_ns: START_NS,
            ended_at_ns: Some(START_NS + 2 * 86_400 * SECOND_NS),
            ended: stormlog_postmortem::Ended::Completed,
            cause: None,
            exit_code: Some(0),
            signal: None,
            is_root: true,
            peaks: crate::end_rows::Peaks::default(),
            heap_peak_bytes: None,
            recorder_version: None,
        };
        publisher.process(row).unwrap();
        publisher.finish_all().unwrap();
    }
    publisher.report.all_rows()
}

#[test]
fn process_expires_with_the_day_that_it_ended_on() {
    for is_published_first in [false, true] {
        let place = tempfile::tempdir().unwrap();
        let lake = place.path().join("lake");
        create_lake(&lake).unwrap();
        if is_published_first {
            assert_eq!(put_process(&lake), 1);
        }
        // The day that it started on expires, and the next.
        let kept = expire::expire(&lake, START_NS + 2 * 86_400 * SECOND_NS).unwrap();
        assert_eq!(kept.files, 0);
        assert_eq!(put_process(&lake), u64::from(!is_published_first));
        assert_eq!(put_process(&lake), 0, "its mark is there");
        let gone = expire::expire(&lake, START_NS + 4 * 86_400 * SECOND_NS).unwrap();
        assert_eq!((gone.files, put_process(&lake)), (1, 0));
    }
}

#[test]
fn files_get_their_names_between_two_runs_once_time_has_passed() {
    let place = tempfile::tempdir().unwrap();
    let lake = place.path().join("lake");
    create_lake(&lake).unwrap();
    let mut publisher = Publisher::new(&lake).unwrap();
    publisher.sample(row(&session(), 0, 0)).unwrap();
    publisher.session_end(&session(), true).unwrap();
    publisher.sessions[0].is_final = true;
    publisher.finish_if_due().unwrap();
    assert_eq!(part_files(&lake, Table::Samples, None), []);
    publisher.finish_every = Duration::ZERO;
    publisher.finish_if_due().unwrap();
    assert_eq!(part_files(&lake, Table::Samples, None).len(), 1);
}
