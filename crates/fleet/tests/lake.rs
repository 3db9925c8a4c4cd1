//! A lake and the run directories it was published from give one report, also where files are torn.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

use std::fs;
use std::path::{Path, PathBuf};

use stormlog_fleet::{Report, Scope, read_report};
use stormlog_lake::read::table_info;
use stormlog_lake::schema::Table;
use stormlog_lake::{PublishOptions, compact, publish};

#[path = "../examples/make_fleet.rs"]
#[allow(dead_code, reason = "the example has a main of its own")]
mod make_fleet;
#[path = "../examples/publish_each.rs"]
#[allow(dead_code, reason = "the example has a main of its own")]
mod publish_each;

/// Two jobs of twelve ranks on three machines, as run directories and as a lake.
fn fleet(root: &Path) -> (PathBuf, PathBuf) {
    let (runs, lake) = (root.join("runs"), root.join("lake"));
    make_fleet::make(&make_fleet::Options {
        out: runs.clone(),
        ranks: 12,
        samples: 60,
        ranks_a_host: 4,
        jobs: 2,
        seed: 7,
    });
    publish(&PublishOptions { paths: vec![runs.clone()], lake: lake.clone(), is_delta: false }).unwrap();
    (runs, lake)
}

fn report(path: &Path, scope: &Scope) -> Report {
    read_report(&[path.to_owned()], scope).unwrap()
}

fn all(path: &Path) -> Report {
    report(path, &Scope::default())
}

#[test]
fn lake_and_runs_give_one_report_which_finds_what_was_planted() {
    let root = tempfile::tempdir().unwrap();
    let (runs, lake) = fleet(root.path());
    let from_lake = all(&lake);
    assert_eq!(from_lake, all(&runs));
    assert_eq!(from_lake, report(&lake, &Scope { readers: 1, ..Scope::default() }), "whatever the readers");
    let expected: serde_json::Value =
        serde_json::from_slice(&fs::read(runs.join("expected.json")).unwrap()).unwrap();
    assert_eq!(from_lake.totals.samples, 2 * 12 * 60);
    for planted in expected["jobs"].as_array().unwrap() {
        let job = from_lake.jobs.iter().find(|job| job.job_id == planted["job_id"]).unwrap();
        let peaks = planted["device_peaks"].as_array().unwrap();
        let highest = peaks.iter().filter_map(serde_json::Value::as_u64).max();
        assert_eq!(job.device_memory.as_ref().map(|memory| memory.peak_bytes), highest);
        assert_eq!(job.missing_ranks, [12], "{job:?}");
        assert_eq!((job.hosts, job.ranks_seen, job.deaths), (3, 12, 1));
        let odd: Vec<i64> = from_lake
            .outlier_ranks
            .iter()
            .filter(|one| one.job_id == job.job_id)
            .map(|one| one.rank)
            .collect();
        assert_eq!(Some(odd.as_slice()), planted["odd"].as_i64().as_ref().map(std::slice::from_ref));
    }
    assert_eq!(from_lake.deaths_by_signature.len(), 1, "one trouble in two jobs");
    assert_eq!(from_lake.deaths_by_signature[0].job_count, 2);
}

#[test]
fn one_job_and_a_time_choose_the_same_rows_of_a_lake_as_of_its_runs() {
    let root = tempfile::tempdir().unwrap();
    let (runs, lake) = fleet(root.path());
    let job = Scope { job: Some("job-0001".to_owned()), ..Scope::default() };
    let one = report(&lake, &job);
    assert_eq!(one, report(&runs, &job));
    assert_eq!((one.jobs.len(), one.totals.samples), (1, 12 * 60));
    // The second job began a day after the first.
    let since = Scope { since_us: Some(1_794_000_000_000_000 + 43_200_000_000), ..Scope::default() };
    let late = report(&lake, &since);
    assert_eq!(late, report(&runs, &since));
    assert_eq!(late.jobs.iter().map(|job| job.job_id.as_str()).collect::<Vec<_>>(), ["job-0001"]);
}

#[test]
fn torn_file_of_a_lake_is_named_and_costs_no_more_than_itself() {
    let root = tempfile::tempdir().unwrap();
    let (_, lake) = fleet(root.path());
    let whole = all(&lake);
    let torn = stormlog_lake::read::table_files(&lake, Table::Samples).unwrap().remove(0).path;
    let bytes = fs::read(&torn).unwrap();
    fs::write(&torn, &bytes[..bytes.len() / 2]).unwrap();
    let left = all(&lake);
    assert_eq!(left.problems.torn_count, 1);
    assert!(left.problems.torn_files[0].contains(torn.file_name().unwrap().to_str().unwrap()));
    assert!(
        left.headline.last().unwrap().contains("1 input could not be read in full"),
        "{:?}",
        left.headline
    );
    assert!(left.totals.samples < whole.totals.samples);
    assert_eq!(left.totals.deaths, whole.totals.deaths, "the other tables are whole");
}

#[test]
fn input_of_which_nothing_can_be_read_is_an_error_with_the_reason() {
    let root = tempfile::tempdir().unwrap();
    let (runs, lake) = fleet(root.path());
    let whole = all(&runs);
    for table in Table::ALL {
        for file in stormlog_lake::read::table_files(&lake, table).unwrap() {
            fs::write(file.path, b"PAR1").unwrap();
        }
    }
    let error = read_report(std::slice::from_ref(&lake), &Scope::default()).unwrap_err().to_string();
    assert!(error.contains("part-") && error.ends_with("nothing could be read"), "{error}");
    let both = read_report(&[lake, runs], &Scope::default()).unwrap();
    assert_eq!((both.jobs, both.problems.torn_count), (whole.jobs, 1));
    let damaged = root.path().join("damaged.parquet");
    fs::write(&damaged, b"PAR1 and no footer").unwrap();
    let error = read_report(&[damaged], &Scope::default()).unwrap_err().to_string();
    assert!(error.contains("damaged.parquet") && error.ends_with("nothing could be read"), "{error}");
}

#[test]
fn many_small_files_are_merged_into_one_a_partition_with_the_same_rows_and_report() {
    for is_delta in [false, true] {
        let root = tempfile::tempdir().unwrap();
        let (runs, lake) = (root.path().join("runs"), root.path().join("lake"));
        let (jobs, ranks, samples) = (2, 40, 10);
        make_fleet::make(&make_fleet::Options {
            out: runs.clone(),
            ranks,
            samples,
            ranks_a_host: 1,
            jobs,
            seed: 3,
        });
        // Each machine publishes its own run: samples and a process, and one death a job.
        let files = publish_each::publish_each(&runs, &lake, is_delta);
        assert_eq!(files as u64, jobs * (2 * ranks + 1));
        let before = all(&lake);
        assert_eq!(before, all(&runs));
        assert_eq!(before.totals.samples, jobs * ranks * samples);
        let counts = |table: Table| {
            let info = table_info(&lake, table).unwrap();
            (info.files, info.rows)
        };
        assert_eq!(counts(Table::Samples), (jobs * ranks, jobs * ranks * samples));
        assert_eq!(counts(Table::Processes), (jobs * ranks, jobs * ranks));
        let merged = compact(&lake).unwrap();
        assert_eq!((merged.files_before, merged.problems.len()), (jobs * 2 * ranks, 0), "{merged:?}");
        assert_eq!(counts(Table::Samples), (jobs, jobs * ranks * samples), "a file a partition");
        assert_eq!(counts(Table::Processes), (jobs, jobs * ranks));
        assert_eq!(counts(Table::Deaths), (jobs, jobs));
        assert_eq!(all(&lake), before);
        let options = PublishOptions { paths: vec![runs.clone()], lake: lake.clone(), is_delta };
        let again = publish(&options).unwrap();
        assert_eq!((again.runs, again.all_rows(), again.files.len()), (jobs * ranks, 0, 0));
        assert_eq!(compact(&lake).unwrap().partitions, 0);
    }
}

/// Renames the column `job_id` in the footer of a file: the column is gone, as in what a Delta tool's OPTIMIZE writes.
fn without_job_column(path: &Path) {
    let mut bytes = fs::read(path).unwrap();
    let end = bytes.len() - 8;
    let length = u32::from_le_bytes(bytes[end..end + 4].try_into().unwrap()) as usize;
    let footer = &mut bytes[end - length..end];
    let places: Vec<usize> = (0..length - 6).filter(|at| &footer[*at..at + 6] == b"job_id").collect();
    assert!(!places.is_empty());
    places.into_iter().for_each(|at| footer[at + 4..at + 6].copy_from_slice(b"__"));
    fs::write(path, bytes).unwrap();
}

#[test]
fn job_of_a_file_without_its_partition_columns_is_that_of_its_directory() {
    let root = tempfile::tempdir().unwrap();
    let (_, lake) = fleet(root.path());
    let job = Scope { job: Some("job-0001".to_owned()), ..Scope::default() };
    let (whole, one) = (all(&lake), report(&lake, &job));
    for table in Table::ALL {
        let files = stormlog_lake::read::table_files(&lake, table).unwrap();
        files.iter().for_each(|file| without_job_column(&file.path));
    }
    assert_eq!(all(&lake), whole);
    assert_eq!(report(&lake, &job), one);
}

fn copied(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        match entry.file_type().unwrap().is_dir() {
            true => copied(&entry.path(), &target),
            false => drop(fs::copy(entry.path(), target).unwrap()),
        }
    }
}

/// Cuts the samples of a run to half, as a copy that is behind has them.
fn halve_logs(directory: &Path) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            halve_logs(&path);
        } else if path.extension().is_some_and(|ending| ending == "slog") {
            let bytes = fs::read(&path).unwrap();
            fs::write(&path, &bytes[..bytes.len() / 2]).unwrap();
        }
    }
}

#[test]
fn most_complete_copy_of_a_run_is_read_whatever_its_path() {
    let root = tempfile::tempdir().unwrap();
    let runs = root.path().join("m-runs");
    make_fleet::make(&make_fleet::Options {
        out: runs.clone(),
        ranks: 2,
        samples: 400,
        ranks_a_host: 2,
        jobs: 1,
        seed: 1,
    });
    let whole = all(&runs);
    let run = fs::read_dir(&runs).unwrap().flatten().find(|entry| entry.path().is_dir()).unwrap();
    let copy_of = |name: &str, is_shipped: bool| {
        let place = root.path().join(name);
        let copy = place.join(run.file_name());
        copied(&run.path(), &copy);
        halve_logs(&copy);
        if is_shipped {
            fs::write(copy.join(".shipment.json"), "{}").unwrap();
        }
        place
    };
    let behind = [copy_of("a-shipped", true), copy_of("b-copied", false), copy_of("z-copied", false)];
    for place in &behind {
        assert!(all(place).totals.samples < whole.totals.samples, "{place:?}");
    }
    let together = read_report(&[&behind[..], &[runs]].concat(), &Scope::default()).unwrap();
    assert_eq!((together.problems.copy_count, together.problems.torn_count), (3, 0));
    assert_eq!(together.totals, whole.totals);
    assert_eq!(together.jobs, whole.jobs);
    // Of two that are behind the run itself is read.
    let two = read_report(&behind[..2], &Scope::default()).unwrap();
    assert!(two.problems.copies[0].contains("a-shipped"), "{:?}", two.problems.copies);
}
