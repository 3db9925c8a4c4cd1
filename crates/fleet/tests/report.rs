//! The report over rows made by hand: every rule with a fleet in which its answer is known.

use std::sync::Arc;

use stormlog_fleet::gather::{Gathered, HOST};
use stormlog_fleet::report::{Problems, Report};
use stormlog_fleet::row::{DeathRow, FindingRow, HolderRow, Origin, ProcessRow, Sample};
use stormlog_fleet::{summarise, text};

const GIB: i64 = 1 << 30;
const S: i64 = 1_000_000;
const T0: i64 = 1_794_000_000 * S;

fn origin(job: &str, rank: i64) -> Origin {
    Origin {
        job_id: Arc::from(job),
        run_id: Arc::from(format!("run-{job}-{rank}")),
        host: Arc::from(format!("node-{}", rank / 4)),
        rank: Some(rank),
        world_size: 8,
        attempt: Some(0),
        pid: 100 + rank,
    }
}

fn sample(at_us: i64, held: i64, phase: Option<&str>) -> Sample<'_> {
    Sample { at_us, held: Some(held), total: Some(64 * GIB), phase, ..Sample::default() }
}

fn put(all: &mut Gathered, origin: &Origin, device: i64, samples: &[Sample<'_>]) {
    let stream = all.stream(origin);
    all.samples(origin, stream, device, samples.iter().copied());
}

fn process(all: &mut Gathered, origin: &Origin, name: &str, version: Option<&str>) {
    all.process(ProcessRow {
        origin: origin.clone(),
        job_name: Some(name.to_owned()),
        job_version: version.map(str::to_owned),
        is_main: true,
        started_us: Some(T0),
        ..ProcessRow::default()
    });
}

/// Eight ranks that peak at 20 GiB but for one.
fn job(all: &mut Gathered, id: &str, odd: Option<(i64, i64)>) {
    for rank in 0..8 {
        let own = origin(id, rank);
        let peak = odd.filter(|(odd, _)| *odd == rank).map_or(20, |(_, gib)| gib) * GIB;
        let phase = if peak == 20 * GIB { "forward" } else { "backward" };
        put(all, &own, HOST, &[sample(T0, GIB, None), sample(T0 + 10 * S, peak, Some(phase))]);
        process(all, &own, "train", None);
    }
}

fn report(all: Gathered) -> Report {
    summarise(all, Problems::default())
}

#[test]
fn rank_that_differs_is_reported_with_its_phase_and_line() {
    let mut all = Gathered::default();
    job(&mut all, "j", Some((3, 31)));
    for rank in 0..8 {
        let bytes = if rank == 3 { 13 } else { 2 } * GIB;
        let row = |place: &str, bytes| HolderRow {
            origin: origin("j", rank),
            is_of_device: false,
            place: place.to_owned(),
            bytes,
        };
        all.holder(row("moe.py:77 dispatch", bytes));
        all.holder(row("model.py:31 build", 18 * GIB));
    }
    let report = report(all);
    assert_eq!(report.outlier_ranks.len(), 1);
    let odd = &report.outlier_ranks[0];
    assert_eq!((odd.rank, odd.memory, odd.difference_bytes), (3, "host", 11 * GIB));
    assert_eq!((odd.phase.as_deref(), odd.usual_phase.as_deref()), (Some("backward"), Some("forward")));
    assert_eq!(odd.line.as_deref(), Some("moe.py:77 dispatch"));
    assert_eq!(odd.line_more_bytes, Some(11 * GIB as u64));
    let first = &report.headline[0];
    assert!(first.starts_with("rank 3 (node-0) of j peaks 11.00 GiB above"), "{first}");
    assert!(first.contains("moe.py:77 dispatch"), "{first}");
}

#[test]
fn machine_whose_ranks_differ_is_reported() {
    let mut all = Gathered::default();
    for rank in 0..40 {
        let own = Origin { world_size: 40, ..origin("j", rank) };
        let peak = if rank / 4 == 6 { 30 } else { 20 } * GIB;
        put(&mut all, &own, 0, &[sample(T0, peak, None)]);
    }
    let report = report(all);
    let hosts: Vec<(&str, u64, i64)> = report
        .outlier_hosts
        .iter()
        .map(|host| (host.host.as_str(), host.ranks, host.difference_bytes))
        .collect();
    assert_eq!(hosts, [("node-6", 4, 10 * GIB)]);
    assert_eq!(report.outlier_ranks.len(), 4);
}

#[test]
fn attempts_are_compared_apart_and_restarts_counted() {
    let mut all = Gathered::default();
    job(&mut all, "j", Some((5, 40)));
    for rank in 0..8 {
        let own = Origin { attempt: Some(1), run_id: Arc::from("again"), ..origin("j", rank) };
        put(&mut all, &own, HOST, &[sample(T0 + 100 * S, 20 * GIB, None)]);
    }
    let report = report(all);
    assert_eq!(report.jobs[0].restarts, 1);
    assert!(report.jobs[0].duplicated_ranks.is_empty(), "a restart is not a duplicate");
    let odd: Vec<(Option<i64>, i64)> =
        report.outlier_ranks.iter().map(|one| (one.attempt, one.rank)).collect();
    assert_eq!(odd, [(Some(0), 5)]);
}

#[test]
fn rank_that_differs_in_two_attempts_is_named_with_the_attempt_and_counted_once() {
    let mut all = Gathered::default();
    job(&mut all, "j", Some((5, 40)));
    for rank in 0..8 {
        let own = Origin { attempt: Some(1), run_id: Arc::from("again"), ..origin("j", rank) };
        let bytes = if rank == 5 { 50 } else { 20 } * GIB;
        put(&mut all, &own, HOST, &[sample(T0 + 100 * S, bytes, None)]);
    }
    let report = report(all);
    let odd: Vec<(Option<i64>, i64)> =
        report.outlier_ranks.iter().map(|one| (one.attempt, one.rank)).collect();
    assert_eq!(odd, [(Some(1), 5), (Some(0), 5)]);
    let shown = text(&report);
    assert!(shown.contains("of j attempt 1 peaks 30.00 GiB above"), "{shown}");
    assert!(shown.contains("of j peaks 20.00 GiB above"), "{shown}");
    assert!(!shown.contains("more rank"), "{shown}");
}

#[test]
fn missing_ranks_are_counted_and_named() {
    let mut all = Gathered::default();
    for rank in [0, 1, 2, 4, 5, 7] {
        put(&mut all, &origin("j", rank), HOST, &[sample(T0, GIB, None)]);
    }
    let report = report(all);
    let job = &report.jobs[0];
    assert_eq!((job.world_size, job.ranks_seen, job.missing_count), (8, 6, 2));
    assert_eq!(job.missing_ranks, [3, 6]);
    assert!(
        report.headline[0].contains("2 of 8 ranks of j left no recording: 3, 6"),
        "{:?}",
        report.headline
    );
}

#[test]
fn rank_of_two_machines_is_duplicated_only_beyond_the_difference_of_clocks() {
    let overlap_of = |seconds: i64, host: &str| {
        let mut all = Gathered::default();
        let own = origin("j", 0);
        put(&mut all, &own, HOST, &[sample(T0, GIB, None), sample(T0 + 60 * S, GIB, None)]);
        let other = Origin { host: Arc::from(host), run_id: Arc::from("other"), ..own };
        let start = T0 + 60 * S - seconds * S;
        put(&mut all, &other, HOST, &[sample(start, GIB, None), sample(start + 60 * S, GIB, None)]);
        let report = report(all);
        (report.jobs[0].duplicated_ranks.clone(), report.jobs[0].restarts)
    };
    assert_eq!(overlap_of(5, "node-9").0, Vec::<i64>::new(), "within the skew of two clocks");
    assert_eq!(overlap_of(6, "node-9").0, [0]);
    assert_eq!(overlap_of(1, "node-0").0, [0], "one machine has one clock");
    assert_eq!(overlap_of(-2, "node-0"), (vec![], 1), "one after the other is a restart");
}

fn death(job: &str, rank: i64, at_us: i64, cause: &str, signature: &str) -> DeathRow {
    DeathRow {
        origin: origin(job, rank),
        at_us,
        cause: cause.to_owned(),
        sentence: Some(format!("rank {rank} died")),
        signature: Some(signature.to_owned()),
        line: None,
    }
}

#[test]
fn deaths_are_grouped_by_cause_and_by_signature_over_jobs() {
    let mut all = Gathered::default();
    for (id, rank) in [("a", 0), ("b", 1), ("b", 5)] {
        all.death(death(id, rank, T0 + rank, "oom_exception", "issue:1"));
    }
    all.death(death("c", 2, T0, "signal", "issue:2"));
    // The same death from a copy of the recording.
    all.death(death("c", 2, T0, "signal", "issue:2"));
    let report = report(all);
    let causes: Vec<(&str, u64, u64)> =
        report.deaths_by_cause.iter().map(|one| (one.cause.as_str(), one.count, one.jobs)).collect();
    assert_eq!(causes, [("oom_exception", 3, 2), ("signal", 1, 1)]);
    let signatures: Vec<(&str, u64, u64)> = report
        .deaths_by_signature
        .iter()
        .map(|one| (one.signature.as_str(), one.count, one.job_count))
        .collect();
    assert_eq!(signatures, [("issue:1", 3, 2), ("issue:2", 1, 1)]);
    assert!(
        report.headline[0].starts_with("3 processes of 2 jobs ran out of memory and died"),
        "{:?}",
        report.headline
    );
}

#[test]
fn jobs_that_ran_out_of_memory_are_counted_over_all_causes() {
    let mut all = Gathered::default();
    for (id, cause) in [
        ("a", "oom_exception"),
        ("b", "oom_exception"),
        ("b", "cgroup_oom_kill"),
        ("c", "cgroup_oom_kill"),
        ("d", "signal"),
    ] {
        all.death(death(id, 0, T0 + cause.len() as i64, cause, cause));
    }
    let report = report(all);
    assert_eq!(report.totals.memory_death_jobs, 3, "{:?}", report.deaths_by_cause);
    assert!(report.headline[0].starts_with("4 processes of 3 jobs"), "{:?}", report.headline);
}

#[test]
fn first_death_is_certain_only_beyond_the_difference_of_clocks() {
    // Rank 0 is on node-0, rank 4 on node-1: the abort of rank 0 has the earlier stamp, and may be the consequence.
    let first_of = |gap_us: i64| {
        let mut all = Gathered::default();
        all.death(death("j", 0, T0, "signal", "s"));
        all.death(death("j", 4, T0 + gap_us, "oom_exception", "m"));
        all.death(death("j", 1, T0 + 1, "signal", "s"));
        report(all).first_deaths.remove(0)
    };
    let near = first_of(3 * S);
    assert!(!near.is_certain);
    let ranks: Vec<Option<i64>> = near.candidates.iter().map(|death| death.rank).collect();
    assert_eq!(ranks, [Some(4), Some(0)], "out of memory first; rank 1 died later by the clock of rank 0");
    let far = first_of(6 * S);
    assert!(far.is_certain);
    assert_eq!(far.candidates[0].rank, Some(0));
}

#[test]
fn regression_is_found_between_jobs_of_one_name() {
    let mut all = Gathered::default();
    for (number, gib) in [20, 20, 21, 20, 26].into_iter().enumerate() {
        let own = Origin { world_size: 1, ..origin(&format!("j{number}"), 0) };
        let at = T0 + number as i64 * 1000 * S;
        put(&mut all, &own, 0, &[sample(at, gib * GIB, None)]);
        let row = ProcessRow {
            origin: own,
            job_name: Some("train".to_owned()),
            job_version: Some(format!("v{number}")),
            is_main: true,
            ..ProcessRow::default()
        };
        all.process(row);
    }
    let report = report(all);
    let trend = &report.trends[0];
    assert!(trend.is_regression);
    let marks: Vec<bool> = trend.points.iter().map(|point| point.is_regression).collect();
    assert_eq!(marks, [false, false, false, false, true], "one GiB of 20 is within 5 %");
    assert_eq!(trend.increase(), 6 * GIB as u64);
    assert!(
        report.headline[0].contains("train peaks 6.00 GiB higher in version v4"),
        "{:?}",
        report.headline
    );
}

#[test]
fn launcher_larger_than_its_ranks_is_not_the_peak_of_the_job() {
    const MIB: i64 = 1 << 20;
    let mut all = Gathered::default();
    for (number, mib) in [42, 42, 312].into_iter().enumerate() {
        let at = T0 + number as i64 * 1000 * S;
        let id = format!("j{number}");
        let launcher = Origin { rank: None, world_size: 2, ..origin(&id, 0) };
        put(&mut all, &launcher, HOST, &[sample(at, 658 * MIB, None)]);
        for rank in 0..2 {
            let own = Origin { world_size: 2, ..origin(&id, rank) };
            put(&mut all, &own, HOST, &[sample(at, (mib + rank) * MIB, None)]);
            process(&mut all, &own, "train", None);
        }
    }
    put(
        &mut all,
        &Origin { rank: None, world_size: 1, ..origin("alone", 0) },
        HOST,
        &[sample(T0, GIB, None)],
    );
    let report = report(all);
    let memory =
        |id: &str| report.jobs.iter().find(|job| job.job_id == id).unwrap().host_memory.clone().unwrap();
    let last = memory("j2");
    assert_eq!((last.peak_bytes, last.peak_rank), (313 * MIB as u64, Some(1)));
    assert_eq!(last.sum_of_peaks_bytes, 625 * MIB as u64);
    assert_eq!(last.launcher_peak_bytes, Some(658 * MIB as u64));
    assert!(report.trends[0].is_regression, "{:?}", report.trends);
    let alone = memory("alone");
    assert_eq!((alone.peak_bytes, alone.peak_rank, alone.median_peak_bytes), (GIB as u64, None, GIB as u64));
}

#[test]
fn runs_that_met_at_one_address_are_jobs_by_the_time_that_they_share() {
    let mut all = Gathered::default();
    let run = |all: &mut Gathered, id: &str, rank: i64, name: &str, begin: i64, attempt: Option<i64>| {
        let own = Origin { run_id: name.into(), attempt, world_size: 2, ..origin(id, rank) };
        put(all, &own, HOST, &[sample(begin, GIB, None), sample(begin + 60 * S, GIB, None)]);
    };
    // Two machines each, ten minutes apart; the third run of rank 0 is a restart that its launcher counted.
    for (begin, name) in [(T0, "a"), (T0 + 600 * S, "b")] {
        run(&mut all, "node-3:29500", 0, &format!("{name}0"), begin, Some(0));
        run(&mut all, "node-3:29500", 1, &format!("{name}1"), begin + S, Some(0));
    }
    run(&mut all, "node-3:29500", 0, "c0", T0 + 700 * S, Some(1));
    // A scheduler's id stays one job, a later run is a restart.
    run(&mut all, "8841", 0, "s0", T0, None);
    run(&mut all, "8841", 0, "s1", T0 + 600 * S, None);
    // Two machines that each met at their own loopback address.
    run(&mut all, "127.0.0.1:29500", 0, "l0", T0, None);
    run(&mut all, "127.0.0.1:29500", 4, "l1", T0, None);
    run(&mut all, "alone:29500", 0, "x0", T0, None);
    let report = report(all);
    let mut jobs: Vec<(&str, u64, u64)> =
        report.jobs.iter().map(|job| (job.job_id.as_str(), job.runs, job.restarts)).collect();
    jobs.sort_unstable();
    let expected = [
        ("127.0.0.1:29500@node-0@2026-11-06T21:20:00Z", 1, 0),
        ("127.0.0.1:29500@node-1@2026-11-06T21:20:00Z", 1, 0),
        ("8841", 2, 1),
        ("alone:29500", 1, 0),
        ("node-3:29500@2026-11-06T21:20:00Z", 2, 0),
        ("node-3:29500@2026-11-06T21:30:00Z", 3, 1),
    ];
    assert_eq!(jobs, expected);
}

#[test]
fn waste_counts_a_machine_once_and_an_allocator_by_what_it_never_used() {
    let mut all = Gathered::default();
    for rank in 0..8 {
        let own = origin("j", rank);
        put(&mut all, &own, HOST, &[sample(T0, 4 * GIB, None)]);
        let device = Sample {
            at_us: T0,
            held: Some(12 * GIB),
            reserved: Some(12 * GIB),
            allocated: Some(9 * GIB),
            total: Some(80 * GIB),
            ..Sample::default()
        };
        put(&mut all, &own, 0, &[device]);
    }
    let report = report(all);
    let host = report.jobs[0].host_memory.as_ref().unwrap();
    assert_eq!(host.limit_bytes, Some(2 * 64 * GIB as u64), "two machines");
    assert_eq!(host.waste_bytes, Some(2 * (64 - 16) * GIB as u64));
    let device = report.jobs[0].device_memory.as_ref().unwrap();
    assert_eq!(
        (device.sum_of_peaks_bytes, device.waste_bytes),
        (8 * 12 * GIB as u64, Some(8 * 3 * GIB as u64))
    );
}

/// Rows in any order and in any number of readers give the same report.
#[test]
fn report_does_not_depend_on_the_order_of_rows_or_readers() {
    let fill = |all: &mut Gathered, ranks: &[i64]| {
        for rank in ranks {
            let own = origin("j", *rank);
            let samples: Vec<Sample<'_>> =
                (0..50).map(|at| sample(T0 + at * S, (at * 7919 % 50) * GIB / 8, Some("p"))).collect();
            put(all, &own, HOST, &samples);
            process(all, &own, "train", Some("v1"));
            all.death(death("j", *rank, T0 + rank * S, "signal", "s"));
            let finding = FindingRow {
                origin: own,
                kind: "leak".to_owned(),
                severity: "warning".to_owned(),
                title: format!("rank {rank} grows"),
            };
            all.finding(finding);
        }
    };
    let mut one = Gathered::default();
    fill(&mut one, &[0, 1, 2, 3, 4, 5, 6, 7]);
    let (mut a, mut b) = (Gathered::default(), Gathered::default());
    fill(&mut b, &[7, 3, 1]);
    fill(&mut a, &[6, 0, 5, 2, 4]);
    a.merge(b);
    assert_eq!(report(one), report(a));
}

#[test]
fn number_of_ranks_beyond_any_cluster_is_counted_and_long_names_lose_their_middle() {
    let mut all = Gathered::default();
    let id = format!("{}end", "j".repeat(5000));
    let own = Origin { world_size: i64::MAX, ..origin(&id, 3) };
    put(&mut all, &own, HOST, &[sample(T0, GIB, None)]);
    let report = report(all);
    assert_eq!(report.jobs[0].missing_count, i64::MAX as u64 - 1);
    assert_eq!(report.jobs[0].missing_ranks.len(), 16);
    let shown = text(&report);
    let row = shown.lines().find(|line| line.starts_with("  jjj")).unwrap();
    assert!(row.contains("…jjj") && row.contains("end ") && row.chars().count() < 200, "{row}");
}

#[test]
fn text_is_inert_and_begins_with_the_answer() {
    let mut all = Gathered::default();
    let own = Origin { world_size: 1, ..origin("\u{1b}[31mjob", 0) };
    put(&mut all, &own, HOST, &[sample(T0, GIB, Some("\u{202e}x"))]);
    let mut problems = Problems::default();
    (0..3).for_each(|number| problems.torn(format!("part-{number}.parquet: no footer")));
    let report = summarise(all, problems);
    let shown = text(&report);
    assert!(!shown.contains('\u{1b}') && !shown.contains('\u{202e}'), "{shown}");
    assert!(shown.contains("3 inputs could not be read in full: part-0.parquet: no footer"), "{shown}");
    assert!(report.headline.len() <= 8);
}

#[test]
fn text_lists_outlier_machines_and_the_first_death_of_each_attempt() {
    let mut all = Gathered::default();
    for rank in 0..16 {
        let own = Origin { world_size: 16, ..origin("j", rank) };
        put(&mut all, &own, 0, &[sample(T0, if rank / 4 == 3 { 26 } else { 20 } * GIB, None)]);
    }
    all.death(death("j", 5, T0, "oom_exception", "m"));
    all.death(death("k", 2, T0 + S, "signal", "s"));
    let shown = text(&report(all));
    let machine = "Outlier machines\n  the 4 ranks of j on node-3 take 6.00 GiB more device memory than on the other machines\n";
    assert!(shown.contains(machine), "{shown}");
    let first = "First to die\n  k attempt 0: rank 2 on node-0 died first (signal)\n  j attempt 0: rank 5 on node-1 died first (oom_exception)\n";
    assert!(shown.contains(first), "{shown}");
}

#[test]
fn empty_fleet_is_reported_as_such() {
    assert_eq!(report(Gathered::default()).headline, ["No samples were found."]);
}
