//! Publishing real recordings: once each, continued after a kill, by several at once, merged and expired.
#![cfg(feature = "parquet")]
#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use stormlog_lake::read::{scan, table_files, table_info};
use stormlog_lake::schema::Table;
use stormlog_lake::{LakeError, PublishOptions, PublishReport, compact, expire, publish};

fn corpus(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/corpus/recordings").join(name)
}

fn put(paths: &[PathBuf], lake: &Path, is_delta: bool) -> PublishReport {
    publish(&PublishOptions { paths: paths.to_vec(), lake: lake.to_owned(), is_delta }).unwrap()
}

/// Each row of a table as its cells that tell it from others, counted.
fn rows(lake: &Path, table: Table) -> BTreeMap<String, usize> {
    let mut found = BTreeMap::new();
    let columns = ["job_id", "rank", "device", "ts", "session_id", "pid", "metadata"];
    let problems = scan(lake, table, &columns, &mut |batch| {
        for row in 0..batch.rows {
            let cells: Vec<String> = batch
                .columns
                .iter()
                .map(|column| match column.text(row) {
                    Some(text) => text.to_owned(),
                    None => format!("{:?}", column.integer(row)),
                })
                .collect();
            *found.entry(cells.join("|")).or_insert(0) += 1;
        }
        Ok(())
    });
    assert_eq!(problems.unwrap(), []);
    found
}

fn copied(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        match entry.file_type().unwrap().is_dir() {
            true => copied(&entry.path(), &target),
            false => drop(std::fs::copy(entry.path(), target).unwrap()),
        }
    }
}

#[test]
fn second_publication_adds_nothing_also_of_a_copy_of_the_run() {
    let place = tempfile::tempdir().unwrap();
    let lake = place.path().join("lake");
    let run = corpus("leak_after_imports");
    let first = put(std::slice::from_ref(&run), &lake, false);
    assert!(first.rows[&Table::Samples] > 50 && first.rows[&Table::Processes] == 2, "{first:?}");
    assert!(first.rows[&Table::Findings] > 0 && first.rows[&Table::HeapHolders] > 0);
    let before = rows(&lake, Table::Samples);
    assert!(before.values().all(|count| *count == 1));
    let again = put(std::slice::from_ref(&run), &lake, false);
    assert_eq!((again.all_rows(), again.files.len()), (0, 0));
    let copy = place.path().join("elsewhere").join("leak_after_imports");
    copied(&run, &copy);
    let of_copy = put(&[run, copy], &lake, false);
    assert_eq!((of_copy.runs, of_copy.all_rows()), (1, 0), "a copy holds the same sessions");
    assert_eq!(rows(&lake, Table::Samples), before);
}

/// Changes `run.json` of a copy.
fn change_record(run: &Path, change: impl FnOnce(&mut serde_json::Value)) {
    let file = run.join("run.json");
    let mut record: serde_json::Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    change(&mut record);
    std::fs::write(&file, record.to_string()).unwrap();
}

#[test]
fn shipped_copy_of_a_run_is_the_same_job_and_adds_nothing_whichever_comes_first() {
    for is_copy_first in [false, true] {
        let place = tempfile::tempdir().unwrap();
        let lake = place.path().join("lake");
        let (run, copy) = (place.path().join("runs/run-1"), place.path().join("target/run-1-node7"));
        copied(&corpus("leak_after_imports"), &run);
        change_record(&run, |record| record["name"] = "run-1".into());
        copied(&run, &copy);
        std::fs::write(copy.join(".shipment.json"), "{}").unwrap();
        let [first, second] = if is_copy_first { [copy, run] } else { [run, copy] };
        assert!(put(&[first], &lake, false).all_rows() > 0);
        let again = put(&[second], &lake, false);
        assert_eq!((again.runs, again.all_rows(), again.problem_count), (1, 0, 0), "{again:?}");
        for table in Table::ALL {
            let jobs: Vec<String> =
                table_files(&lake, table).unwrap().iter().map(|file| file.partition.job_id()).collect();
            assert!(jobs.iter().all(|job| job == "run-1"), "{table:?} {jobs:?}");
        }
    }
}

#[test]
fn session_id_that_is_a_dot_does_not_end_the_publication_of_others() {
    let place = tempfile::tempdir().unwrap();
    let (run, lake) = (place.path().join("run"), place.path().join("lake"));
    copied(&corpus("healthy_idle"), &run);
    let mut changed = 0;
    for entry in std::fs::read_dir(&run).unwrap().flatten() {
        let session = entry.path().join("session.json");
        if let Ok(text) = std::fs::read_to_string(&session) {
            let mut value: serde_json::Value = serde_json::from_str(&text).unwrap();
            value["session_id"] = "..".into();
            std::fs::write(&session, value.to_string()).unwrap();
            changed += 1;
        }
    }
    assert!(changed > 0);
    let report = put(&[run, corpus("leak_after_imports")], &lake, false);
    assert_eq!(report.runs, 2);
    assert!(report.rows[&Table::Processes] >= 3, "{report:?}");
}

#[test]
fn publication_that_was_interrupted_between_files_is_completed() {
    let place = tempfile::tempdir().unwrap();
    let (whole, broken) = (place.path().join("whole"), place.path().join("broken"));
    let run = corpus("leak_after_imports");
    put(std::slice::from_ref(&run), &whole, false);
    put(std::slice::from_ref(&run), &broken, false);
    // As a kill leaves it: files become visible one by one, in the order of the tables.
    for killed_at in [0, 3, Table::ALL.len() - 1] {
        for file in Table::ALL[killed_at..].iter().flat_map(|table| table_files(&broken, *table).unwrap()) {
            std::fs::remove_file(&file.path).unwrap();
        }
        put(std::slice::from_ref(&run), &broken, false);
        for table in Table::ALL {
            assert_eq!(rows(&broken, table), rows(&whole, table), "{killed_at} {table:?}");
        }
    }
}

#[test]
fn merged_files_hold_the_same_rows_in_order_and_are_not_published_again() {
    for is_delta in [false, true] {
        let place = tempfile::tempdir().unwrap();
        let lake = place.path().join("lake");
        // One job over several runs, as a launcher states it.
        let mut runs = Vec::new();
        for (number, name) in ["leak_after_imports", "healthy_idle", "leak_ctypes_malloc"].iter().enumerate()
        {
            let run = place.path().join(format!("run-{number}"));
            copied(&corpus(name), &run);
            let file = run.join("run.json");
            let mut record: serde_json::Value =
                serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
            record["launch"] = serde_json::json!({"job_id": "a/b"});
            std::fs::write(&file, record.to_string()).unwrap();
            put(std::slice::from_ref(&run), &lake, is_delta);
            runs.push(run);
        }
        let before: Vec<_> = Table::ALL.iter().map(|table| rows(&lake, *table)).collect();
        let files = table_info(&lake, Table::Samples).unwrap().files;
        let report = compact(&lake).unwrap();
        assert!(report.partitions > 0 && report.problems.is_empty(), "{report:?}");
        let merged = table_info(&lake, Table::Samples).unwrap();
        assert!(merged.files < files && merged.is_delta == is_delta, "{merged:?}");
        let after: Vec<_> = Table::ALL.iter().map(|table| rows(&lake, *table)).collect();
        assert_eq!(before, after);
        let mut last = (None, None, i64::MIN);
        scan(&lake, Table::Samples, &["rank", "device", "ts"], &mut |batch| {
            for row in 0..batch.rows {
                let integer = |at: usize| batch.columns[at].integer(row);
                let key = (integer(0), integer(1), integer(2).unwrap());
                assert!(key >= last || merged.files > 1);
                last = key;
            }
            Ok(())
        })
        .unwrap();
        assert_eq!(put(&runs, &lake, is_delta).all_rows(), 0);
        assert_eq!(compact(&lake).unwrap().partitions, 0);
        // Nothing but the tables and our own directory.
        let mut names: Vec<String> = std::fs::read_dir(lake.join("samples"))
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .filter(|name| !name.starts_with("date="))
            .collect();
        names.sort();
        assert_eq!(names, if is_delta { vec!["_delta_log"] } else { vec![] });
    }
}

#[test]
fn expired_days_leave_the_lake_and_are_not_published_again() {
    let place = tempfile::tempdir().unwrap();
    let lake = place.path().join("lake");
    let run = corpus("healthy_idle");
    put(std::slice::from_ref(&run), &lake, true);
    assert!(table_info(&lake, Table::Samples).unwrap().rows > 0);
    let report = expire(&lake, i64::MAX / 2).unwrap();
    assert!(report.files > 0);
    for table in Table::ALL {
        assert_eq!(table_info(&lake, table).unwrap().files, 0, "{table:?}");
    }
    assert_eq!(put(&[run], &lake, true).all_rows(), 0);
}

#[test]
fn lake_is_not_rewritten_while_it_is_published_to() {
    let place = tempfile::tempdir().unwrap();
    let lake = place.path().join("lake");
    put(&[corpus("healthy_idle")], &lake, false);
    // Another publisher.
    let lock = std::process::Command::new("flock")
        .args(["-s", "-F"])
        .arg(lake.join("_stormlog/lake.json"))
        .args(["sleep", "60"])
        .spawn();
    let mut publisher = lock.unwrap();
    loop {
        match compact(&lake) {
            Err(LakeError::Busy { .. }) => break,
            Ok(_) => std::thread::yield_now(),
            Err(error) => panic!("{error}"),
        }
    }
    assert!(matches!(expire(&lake, 0), Err(LakeError::Busy { .. })));
    publisher.kill().unwrap();
    publisher.wait().unwrap();
    compact(&lake).unwrap();
    assert!(matches!(compact(place.path()), Err(LakeError::NotALake { .. })));
}

#[test]
fn torn_recordings_and_damaged_files_are_named_and_cost_only_themselves() {
    let place = tempfile::tempdir().unwrap();
    let (run, lake) = (place.path().join("run"), place.path().join("lake"));
    copied(&corpus("leak_after_imports"), &run);
    let log = run.join("rank0-pid20402/log/000002.slog");
    let bytes = std::fs::read(&log).unwrap();
    std::fs::write(&log, &bytes[..bytes.len() / 2]).unwrap();
    let report = put(std::slice::from_ref(&run), &lake, false);
    assert!(report.rows[&Table::Samples] > 0);
    assert!(report.problems.iter().any(|problem| problem.path.starts_with(&run)), "{:?}", report.problems);
    let file = table_files(&lake, Table::Samples).unwrap().remove(0).path;
    std::fs::write(&file, "PAR1 damaged").unwrap();
    let again = put(&[run], &lake, false);
    let named = again.problems.iter().find(|problem| problem.path == file).unwrap();
    assert!(!named.sentence.contains(&*file.to_string_lossy()), "the path is there once: {named:?}");
    let info = table_info(&lake, Table::Samples).unwrap();
    assert_eq!((info.damaged.len(), info.files, info.paths.len()), (1, 2, 1));
    assert!(!info.paths.contains(&file));
}

#[test]
fn exit_status_of_a_program_that_ended_well_is_published() {
    let place = tempfile::tempdir().unwrap();
    let lake = place.path().join("lake");
    put(&[corpus("leak_after_imports")], &lake, false);
    let mut found = Vec::new();
    let problems =
        scan(&lake, Table::Processes, &["is_root", "ended", "exit_code"], &mut |batch| {
            let [is_root, ended, exit_code] = batch.columns else { panic!("three columns") };
            found.extend((0..batch.rows).map(|row| {
                (is_root.boolean(row), ended.text(row).map(str::to_owned), exit_code.integer(row))
            }));
            Ok(())
        });
    assert_eq!(problems.unwrap(), []);
    found.sort();
    let ended = |word: &str| Some(word.to_owned());
    // Only that of the program itself is known: the supervisor is not the parent of the others.
    assert_eq!(found, [(Some(false), ended("unknown"), None), (Some(true), ended("completed"), Some(0))]);
}

/// The columns of a file, each with its type: as Parquet has them, which is what engines see.
fn columns_of(file: &Path) -> Vec<String> {
    use parquet::file::reader::{FileReader, SerializedFileReader};
    let reader = SerializedFileReader::new(std::fs::File::open(file).unwrap()).unwrap();
    let metadata = reader.metadata().file_metadata();
    let columns = metadata.schema_descr().columns().iter();
    let column = |column: &parquet::schema::types::ColumnDescPtr| {
        let basic = column.self_type().get_basic_info();
        let logical = column.logical_type_ref().map_or(String::new(), |logical| format!(" {logical:?}"));
        format!("{} {} {}{logical}", column.name(), basic.repetition(), column.physical_type())
    };
    columns.map(column).collect()
}

#[test]
fn columns_of_every_table_of_version_1_are_those_of_today_or_the_first_of_them() {
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden");
    let place = tempfile::tempdir().unwrap();
    let lake = place.path().join("lake");
    // Beside the files of that lake, which has none of `gpu_holders`. Never changed: a later version of the schema has a file of its own.
    let expected = std::fs::read_to_string(golden.join("lake-v1-columns.txt")).unwrap();
    let expected = |table: Table| -> Vec<&str> {
        let of_table =
            expected.split("\n\n").find_map(|part| part.strip_prefix(table.name())?.strip_prefix('\n'));
        of_table.unwrap().lines().collect()
    };
    for table in Table::ALL {
        let expected = expected(table);
        for file in table_files(&golden.join("lake-v1"), table).unwrap() {
            assert_eq!(columns_of(&file.path), expected, "{}: the golden file", file.path.display());
        }
        assert!(table.columns().len() >= expected.len(), "{table:?}: a column was dropped");
        let names = table.columns().iter().map(|column| column.name);
        for (name, line) in names.zip(&expected) {
            assert!(line.starts_with(&format!("{name} ")), "{table:?}: {name} took the place of {line}");
        }
    }
    let mut written = 0;
    put(&[corpus("leak_after_imports")], &lake, false);
    for table in Table::ALL {
        let expected = expected(table);
        for file in table_files(&lake, table).unwrap() {
            let columns = columns_of(&file.path);
            assert_eq!(columns.get(..expected.len()).unwrap_or_default(), expected, "{table:?}");
            written += 1;
        }
    }
    assert_eq!(written, 4, "samples, findings, heap_holders and processes");
}

#[test]
fn lake_of_version_1_stays_readable_and_is_continued() {
    let place = tempfile::tempdir().unwrap();
    let lake = place.path().join("lake");
    copied(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/lake-v1"), &lake);
    let counts: Vec<u64> = Table::ALL.iter().map(|table| table_info(&lake, *table).unwrap().rows).collect();
    assert_eq!(counts, [1023, 1, 2, 2, 0, 4]);
    let columns = ["job_id", "rank", "attempt", "job_name", "job_version", "cause", "is_memory", "role"];
    let mut deaths = 0;
    scan(&lake, Table::Deaths, &columns, &mut |batch| {
        let [job, rank, attempt, name, version, cause, memory, role] = batch.columns else { panic!() };
        assert_eq!((job.text(0), rank.integer(0), attempt.integer(0)), (Some("job/7"), Some(1), Some(2)));
        assert_eq!((name.text(0), version.text(0)), (Some("train"), Some("v1")));
        assert_eq!(
            (cause.text(0), memory.boolean(0), role.text(0)),
            (Some("sigkill"), Some(false), Some("rank"))
        );
        deaths += batch.rows;
        Ok(())
    })
    .unwrap();
    assert_eq!(deaths, 1);
    assert_eq!(put(&[corpus("leak_after_imports")], &lake, true).all_rows(), 0, "its marks are understood");
    assert!(put(&[corpus("healthy_idle")], &lake, true).rows[&Table::Samples] > 0);
}

/// Publishes a run of one job so often, each time as another run with sessions of its own.
fn many_publications(place: &Path, lake: &Path, count: usize, is_delta: bool) -> Vec<PathBuf> {
    let mut runs = Vec::new();
    for number in 0..count {
        let run = place.join(format!("run-{number}"));
        copied(&corpus("healthy_idle"), &run);
        let record = run.join("run.json");
        let text = std::fs::read_to_string(&record).unwrap();
        let mut value: serde_json::Value = serde_json::from_str(&text).unwrap();
        value["launch"] = serde_json::json!({"job_id": "j"});
        std::fs::write(&record, value.to_string()).unwrap();
        // A session is known by its id.
        for entry in std::fs::read_dir(&run).unwrap().flatten() {
            let session = entry.path().join("session.json");
            if let Ok(text) = std::fs::read_to_string(&session) {
                let mut value: serde_json::Value = serde_json::from_str(&text).unwrap();
                let id = format!("{}-{number}", value["session_id"].as_str().unwrap());
                value["session_id"] = id.into();
                std::fs::write(&session, value.to_string()).unwrap();
            }
        }
        put(std::slice::from_ref(&run), lake, is_delta);
        runs.push(run);
    }
    runs
}

fn log_files(lake: &Path, suffix: &str) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(lake.join("samples/_delta_log")).unwrap().flatten();
    let mut found: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
    found.retain(|path| path.to_string_lossy().ends_with(suffix));
    found.sort();
    found
}

#[test]
fn delta_log_continues_from_its_checkpoint_where_the_versions_before_it_are_gone() {
    let place = tempfile::tempdir().unwrap();
    let lake = place.path().join("lake");
    let runs = many_publications(place.path(), &lake, 12, true);
    let before = table_files(&lake, Table::Samples).unwrap();
    assert_eq!(before.len(), 12);
    let [checkpoint] = log_files(&lake, ".checkpoint.parquet").try_into().unwrap();
    assert!(checkpoint.ends_with("00000000000000000010.checkpoint.parquet"));
    let last = std::fs::read_to_string(lake.join("samples/_delta_log/_last_checkpoint")).unwrap();
    assert_eq!(last.trim(), r#"{"version":10,"size":13}"#);
    // As a cleanup of the log leaves it.
    for version in log_files(&lake, ".json").iter().take(10) {
        std::fs::remove_file(version).unwrap();
    }
    assert_eq!(table_files(&lake, Table::Samples).unwrap(), before);
    assert_eq!(put(&runs, &lake, true).all_rows(), 0);
    let rows_before = rows(&lake, Table::Samples);
    compact(&lake).unwrap();
    assert_eq!(table_info(&lake, Table::Samples).unwrap().files, 1);
    assert_eq!(rows(&lake, Table::Samples), rows_before);
    // Without either the log cannot be continued.
    std::fs::remove_file(checkpoint).unwrap();
    let refused = publish(&PublishOptions { paths: runs, lake, is_delta: true });
    assert!(matches!(refused, Err(LakeError::Delta { .. })), "{refused:?}");
}

#[test]
fn merge_that_was_killed_before_the_old_files_were_deleted_shows_no_row_twice() {
    let place = tempfile::tempdir().unwrap();
    let lake = place.path().join("lake");
    let runs = many_publications(place.path(), &lake, 3, true);
    let before = rows(&lake, Table::Samples);
    let old: Vec<(PathBuf, Vec<u8>)> = table_files(&lake, Table::Samples)
        .unwrap()
        .into_iter()
        .map(|file| (file.path.clone(), std::fs::read(&file.path).unwrap()))
        .collect();
    compact(&lake).unwrap();
    old.iter().for_each(|(path, bytes)| std::fs::write(path, bytes).unwrap());
    assert_eq!(put(&runs, &lake, true).all_rows(), 0);
    assert_eq!(rows(&lake, Table::Samples), before);
    compact(&lake).unwrap();
    assert!(old.iter().all(|(path, _)| !path.exists()), "the next one deletes them");
    assert_eq!(rows(&lake, Table::Samples), before);
}

#[test]
fn files_of_other_programs_in_a_partition_outlive_a_merge() {
    for is_delta in [false, true] {
        let place = tempfile::tempdir().unwrap();
        let lake = place.path().join("lake");
        many_publications(place.path(), &lake, 3, is_delta);
        let partition = table_files(&lake, Table::Samples).unwrap()[0].path.parent().unwrap().to_owned();
        // What Spark leaves beside its own files, a table of another program, and notes.
        std::fs::write(partition.join("_SUCCESS"), "").unwrap();
        let other =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("../store/tests/data/parquet/pyarrow-gzip.parquet");
        std::fs::copy(other, partition.join("part-00000-other.snappy.parquet")).unwrap();
        std::fs::write(partition.join("notes.txt"), "mine").unwrap();
        let before = std::fs::read_dir(&partition).unwrap().count();
        if !is_delta {
            // What cannot be carried over in one step is not touched.
            let directory = partition.join("a directory");
            std::fs::create_dir(&directory).unwrap();
            let report = compact(&lake).unwrap();
            assert!(report.problems.iter().any(|problem| problem.path == directory), "{report:?}");
            assert_eq!(std::fs::read_dir(&partition).unwrap().count(), before + 1);
            std::fs::remove_dir(&directory).unwrap();
        }
        let report = compact(&lake).unwrap();
        assert_eq!(report.problems.len(), usize::from(!is_delta), "{:?}", report.problems);
        let left: Vec<String> = std::fs::read_dir(&partition)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        assert_eq!((before, left.len()), (6, 4), "{left:?}");
        for kept in ["_SUCCESS", "part-00000-other.snappy.parquet", "notes.txt"] {
            assert!(left.iter().any(|name| name == kept), "{kept}: {left:?}");
        }
    }
}

/// The actions of one kind in the versions of a log, from a version on.
fn actions(lake: &Path, kind: &str, from: usize) -> Vec<serde_json::Value> {
    let mut found = Vec::new();
    for file in log_files(lake, ".json").iter().skip(from) {
        for line in std::fs::read_to_string(file).unwrap().lines() {
            let mut action: serde_json::Value = serde_json::from_str(line).unwrap();
            if !action[kind].is_null() {
                found.push(action[kind].take());
            }
        }
    }
    found
}

#[test]
fn unreadable_file_does_not_stop_a_lake_with_a_delta_log() {
    let place = tempfile::tempdir().unwrap();
    let lake = place.path().join("lake");
    let runs = many_publications(place.path(), &lake, 2, true);
    let partition = table_files(&lake, Table::Samples).unwrap()[0].path.parent().unwrap().to_owned();
    let damaged = partition.join("part-node1-18c0ffee18c0ffee00000abc0000.parquet");
    std::fs::write(&damaged, "PAR1 damaged").unwrap();
    let of_it =
        |report: &PublishReport| report.problems.iter().filter(|problem| problem.path == damaged).count();
    let report = put(&[corpus("leak_after_imports")], &lake, true);
    assert!(of_it(&report) == 1 && report.rows[&Table::Samples] > 0, "{:?}", report.problems);
    let again = put(&runs, &lake, true);
    assert_eq!((of_it(&again), again.all_rows()), (1, 0), "named once: {:?}", again.problems);
    let active = table_files(&lake, Table::Samples).unwrap();
    assert!(active.len() == 3 && active.iter().all(|file| file.path != damaged), "{active:?}");
    let merged = compact(&lake).unwrap();
    assert!(merged.partitions > 0 && merged.problems.iter().any(|problem| problem.path == damaged));
    assert!(damaged.exists(), "what cannot be read is not deleted");
}

#[test]
fn merge_states_in_the_delta_log_that_it_changes_no_data() {
    let place = tempfile::tempdir().unwrap();
    let lake = place.path().join("lake");
    many_publications(place.path(), &lake, 3, true);
    let before = log_files(&lake, ".json").len();
    assert!(actions(&lake, "add", 0).iter().all(|add| add["dataChange"] == true));
    compact(&lake).unwrap();
    let (added, removed) = (actions(&lake, "add", before), actions(&lake, "remove", before));
    assert_eq!((added.len(), removed.len()), (1, 3));
    assert!(
        added.iter().chain(&removed).all(|action| action["dataChange"] == false),
        "{added:?} {removed:?}"
    );
    // Expiry does change data.
    let before = log_files(&lake, ".json").len();
    expire(&lake, i64::MAX / 2).unwrap();
    assert_eq!(actions(&lake, "remove", before)[0]["dataChange"], true);
}

#[test]
fn delta_log_keeps_what_other_programs_added_and_gives_up_only_our_own_files_that_are_gone() {
    let place = tempfile::tempdir().unwrap();
    let lake = place.path().join("lake");
    let run = place.path().join("run");
    copied(&corpus("healthy_idle"), &run);
    change_record(&run, |record| record["launch"] = serde_json::json!({"job_id": "a/b c"}));
    put(std::slice::from_ref(&run), &lake, true);
    let [own] = actions(&lake, "add", 0).try_into().unwrap();
    let own = own["path"].as_str().unwrap().to_owned();
    assert!(own.contains("job_id=a%252Fb%2520c/part-"), "{own}");
    let directory = own.rsplit_once('/').unwrap().0.to_owned();
    // Another program rewrites the log: it escapes more of the path, and adds files that are elsewhere or that it has not written here.
    let other = own.replace('=', "%3D").replace("part-", "part%2D");
    let spark = format!("{directory}/part-00000-5c1a4a12-4d0b-4a41-8f0e-1d7f9e0ab5cd.c000.snappy.parquet");
    let absolute = "s3://bucket/table/date=2026-11-16/job_id=x/part-n-0123456789abcdef0123456789ab.parquet";
    let add = |path: &str| serde_json::json!({"add": {"path": path, "size": 1, "modificationTime": 1, "dataChange": true, "partitionValues": {}}});
    let mut lines = vec![serde_json::json!({"remove": {"path": own, "dataChange": false}})];
    lines.extend([other.as_str(), &spark, absolute].map(add));
    let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
    std::fs::write(lake.join("samples/_delta_log/00000000000000000001.json"), text).unwrap();
    put(&[corpus("leak_after_imports")], &lake, true);
    assert_eq!(actions(&lake, "remove", 2), Vec::<serde_json::Value>::new());
    assert_eq!(actions(&lake, "add", 2).len(), 1, "nothing is added again under another spelling");
    let files = table_files(&lake, Table::Samples).unwrap();
    assert_eq!(files.len(), 2, "the file is found by the other spelling: {files:?}");
    let gone = files.iter().find(|file| file.partition.job_id() == "a/b c").unwrap();
    std::fs::remove_file(&gone.path).unwrap();
    put(&[corpus("leak_after_imports")], &lake, true);
    let removed = actions(&lake, "remove", 2);
    assert_eq!(removed.len(), 1, "{removed:?}");
    assert_eq!(removed[0]["path"], other.as_str(), "as the log has it");
}

/// As OPTIMIZE of another program leaves a table: one file of its own that has no footer of ours, and a version that gives up the files of ours.
fn optimized_by_another(lake: &Path) -> Vec<PathBuf> {
    let files = table_files(lake, Table::Samples).unwrap();
    let mut lines = Vec::new();
    for file in &files {
        lines.push(
            serde_json::json!({"remove": {"path": file.relative().replace('%', "%25"), "dataChange": false}}),
        );
    }
    let name = "part-00000-5c1a4a12-4d0b-4a41-8f0e-1d7f9e0ab5cd-c000.zstd.parquet";
    let other =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../store/tests/data/parquet/pyarrow-gzip.parquet");
    std::fs::copy(other, files[0].path.with_file_name(name)).unwrap();
    let path = files[0].relative().replace(&files[0].name(), name).replace('%', "%25");
    lines.push(serde_json::json!({"add": {"path": path, "size": 1, "modificationTime": 1, "dataChange": false, "partitionValues": {}}}));
    let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
    let next = log_files(lake, ".json").len();
    std::fs::write(lake.join(format!("samples/_delta_log/{next:020}.json")), text).unwrap();
    files.into_iter().map(|file| file.path).collect()
}

#[test]
fn rows_that_another_program_rewrote_are_not_published_again() {
    for is_compacted in [false, true] {
        let place = tempfile::tempdir().unwrap();
        let lake = place.path().join("lake");
        let runs = many_publications(place.path(), &lake, 2, true);
        let given_up = optimized_by_another(&lake);
        if is_compacted {
            compact(&lake).unwrap();
            assert!(given_up.iter().all(|path| path.exists()), "the other program's to delete");
        }
        // VACUUM, at once.
        given_up.iter().for_each(|path| std::fs::remove_file(path).unwrap());
        compact(&lake).unwrap();
        assert_eq!(put(&runs, &lake, true).all_rows(), 0);
        // Of days that expired nothing is left.
        expire(&lake, i64::MAX / 2).unwrap();
        let left = std::fs::read_dir(lake.join("_stormlog/marks/samples")).unwrap().count();
        assert_eq!(left, 0);
    }
}

#[test]
fn rows_of_a_file_that_was_removed_by_hand_are_published_again() {
    let place = tempfile::tempdir().unwrap();
    let lake = place.path().join("lake");
    let runs = many_publications(place.path(), &lake, 2, true);
    let before = rows(&lake, Table::Samples);
    std::fs::remove_file(&table_files(&lake, Table::Samples).unwrap()[0].path).unwrap();
    assert!(put(&runs, &lake, true).rows[&Table::Samples] > 0);
    assert_eq!(rows(&lake, Table::Samples), before);
}

#[test]
fn nothing_is_removed_through_a_link_in_place_of_our_own_directory() {
    let place = tempfile::tempdir().unwrap();
    let (lake, elsewhere) = (place.path().join("lake"), place.path().join("elsewhere"));
    let run = corpus("healthy_idle");
    put(std::slice::from_ref(&run), &lake, false);
    std::fs::rename(lake.join("_stormlog"), &elsewhere).unwrap();
    std::os::unix::fs::symlink(&elsewhere, lake.join("_stormlog")).unwrap();
    let kept = elsewhere.join("compact/kept");
    std::fs::create_dir(elsewhere.join("compact")).unwrap();
    std::fs::write(&kept, "not ours").unwrap();
    assert!(compact(&lake).is_err() && expire(&lake, i64::MAX / 2).is_err());
    assert!(publish(&PublishOptions { paths: vec![run], lake, is_delta: false }).is_err());
    assert!(kept.exists() && !elsewhere.join("expired.json").exists());
}

#[test]
fn table_that_is_a_link_is_neither_read_written_nor_expired() {
    let place = tempfile::tempdir().unwrap();
    let (lake, other) = (place.path().join("lake"), place.path().join("other"));
    put(&[corpus("healthy_idle")], &other, false);
    put(&[corpus("leak_after_imports")], &lake, false);
    std::fs::remove_dir_all(lake.join("samples")).unwrap();
    std::os::unix::fs::symlink(other.join("samples"), lake.join("samples")).unwrap();
    let before = rows(&other, Table::Samples);
    assert_eq!(table_files(&lake, Table::Samples).unwrap(), []);
    let refused = publish(&PublishOptions {
        paths: vec![corpus("leak_ctypes_malloc")],
        lake: lake.clone(),
        is_delta: false,
    });
    assert!(matches!(refused, Err(LakeError::Io { .. })), "{refused:?}");
    compact(&lake).unwrap();
    expire(&lake, i64::MAX / 2).unwrap();
    assert_eq!(rows(&other, Table::Samples), before);
    assert_eq!(rows(&lake, Table::Processes), BTreeMap::new());
}

#[test]
fn delta_log_that_is_damaged_or_hostile_is_refused() {
    let place = tempfile::tempdir().unwrap();
    let lake = place.path().join("lake");
    put(&[corpus("healthy_idle")], &lake, true);
    let version = lake.join("samples/_delta_log/00000000000000000001.json");
    let again = || {
        let paths = vec![corpus("leak_after_imports")];
        publish(&PublishOptions { paths, lake: lake.clone(), is_delta: true })
    };
    for text in ["not JSON\n", "[1]\n"] {
        std::fs::write(&version, text).unwrap();
        assert!(matches!(again(), Err(LakeError::Delta { .. })), "{text}");
    }
    std::fs::remove_file(&version).unwrap();
    for target in ["/dev/zero", "/dev/null"] {
        std::os::unix::fs::symlink(target, &version).unwrap();
        assert!(matches!(again(), Err(LakeError::Io { .. })), "{target}");
        std::fs::remove_file(&version).unwrap();
    }
    assert!(std::process::Command::new("mkfifo").arg(&version).status().unwrap().success());
    assert!(matches!(again(), Err(LakeError::Io { .. })));
    std::fs::remove_file(&version).unwrap();
    assert!(again().unwrap().rows[&Table::Samples] > 0);
}

#[test]
fn table_keeps_its_own_id_and_properties_when_columns_are_added() {
    let place = tempfile::tempdir().unwrap();
    let (lake, other) = (place.path().join("lake"), place.path().join("other"));
    let run = corpus("leak_after_imports");
    put(std::slice::from_ref(&run), &lake, true);
    put(std::slice::from_ref(&run), &other, true);
    let id = |lake: &Path| actions(lake, "metaData", 0).last().unwrap()["id"].clone();
    assert_ne!(id(&lake), id(&other), "tables of two lakes are not one");
    // As an earlier release would have left it, with a property that another program set.
    let first = log_files(&lake, ".json").remove(0);
    let text = std::fs::read_to_string(&first).unwrap();
    let lines = text.lines().map(|line| {
        let mut action: serde_json::Value = serde_json::from_str(line).unwrap();
        if let Some(metadata) = action.get_mut("metaData") {
            let mut schema: serde_json::Value =
                serde_json::from_str(metadata["schemaString"].as_str().unwrap()).unwrap();
            schema["fields"].as_array_mut().unwrap().remove(5);
            metadata["schemaString"] = schema.to_string().into();
            metadata["configuration"] = serde_json::json!({"delta.logRetentionDuration": "interval 7 days"});
        }
        format!("{action}\n")
    });
    let changed: String = lines.collect();
    std::fs::write(&first, changed).unwrap();
    let before = id(&lake);
    put(&[run], &lake, true);
    let all = actions(&lake, "metaData", 0);
    let last = all.last().unwrap();
    assert_eq!((all.len(), &last["id"]), (2, &before));
    assert_eq!(last["configuration"]["delta.logRetentionDuration"], "interval 7 days");
    let schema: serde_json::Value = serde_json::from_str(last["schemaString"].as_str().unwrap()).unwrap();
    assert_eq!(schema["fields"].as_array().unwrap().len(), Table::Samples.columns().len() + 1);
}

#[test]
fn delta_log_without_a_protocol_gets_one() {
    let place = tempfile::tempdir().unwrap();
    let lake = place.path().join("lake");
    std::fs::create_dir_all(lake.join("samples/_delta_log")).unwrap();
    std::fs::write(lake.join("samples/_delta_log/00000000000000000000.json"), "{\"commitInfo\": {}}\n")
        .unwrap();
    put(&[corpus("healthy_idle")], &lake, true);
    assert_eq!(actions(&lake, "protocol", 0).len(), 1);
}

#[test]
fn lake_whose_own_path_is_a_link_is_published_to_merged_and_expired() {
    let place = tempfile::tempdir().unwrap();
    let (mount, lake) = (place.path().join("mount"), place.path().join("lake"));
    std::fs::create_dir(&mount).unwrap();
    std::os::unix::fs::symlink(&mount, &lake).unwrap();
    many_publications(place.path(), &lake, 2, false);
    assert!(compact(&lake).unwrap().partitions > 0);
    assert!(table_info(&mount, Table::Samples).unwrap().rows > 0);
    assert!(expire(&lake, i64::MAX / 2).unwrap().files > 0);
    assert!(lake.is_symlink());
}

#[test]
fn original_is_published_where_a_shipped_copy_of_it_is_behind() {
    let place = tempfile::tempdir().unwrap();
    let lake = place.path().join("lake");
    // By its path the copy comes first.
    let (run, copy) = (place.path().join("runs/run-1"), place.path().join("a/run-1-node7"));
    copied(&corpus("leak_after_imports"), &run);
    change_record(&run, |record| record["name"] = "run-1".into());
    copied(&run, &copy);
    std::fs::write(copy.join(".shipment.json"), "{}").unwrap();
    std::fs::remove_dir_all(copy.join("rank0-pid20669")).unwrap();
    let report = put(&[copy.clone(), run.clone()], &lake, false);
    assert_eq!((report.runs, report.claimed, report.problem_count), (1, 0, 0), "{report:?}");
    assert_eq!((&report.copies[0].path, &report.copies[0].of), (&copy, &run));
    let alone = put(&[run], &place.path().join("other"), false);
    assert_eq!(report.rows, alone.rows);
}

#[test]
fn lake_follows_the_umask_and_the_group_of_its_directory() {
    use std::os::unix::fs::{MetadataExt, PermissionsExt};
    let mode = |path: &Path| std::fs::metadata(path).unwrap().mode() & 0o7777;
    let place = tempfile::tempdir().unwrap();
    // What the umask leaves of a directory and of a file.
    let (directory, file) = (place.path().join("directory"), place.path().join("file"));
    std::fs::create_dir(&directory).unwrap();
    std::fs::write(&file, "").unwrap();
    let (directory, file) = (mode(&directory), mode(&file));
    let parent = place.path().join("shared");
    std::fs::create_dir(&parent).unwrap();
    std::fs::set_permissions(&parent, std::fs::Permissions::from_mode(0o2775)).unwrap();
    let lake = parent.join("lake");
    many_publications(place.path(), &lake, 2, true);
    let mut directories = vec![lake.clone()];
    while let Some(next) = directories.pop() {
        assert_eq!(mode(&next), directory | 0o2000, "{}", next.display());
        for entry in std::fs::read_dir(&next).unwrap().flatten() {
            match entry.path().is_dir() {
                true => directories.push(entry.path()),
                false => assert_eq!(mode(&entry.path()), file, "{}", entry.path().display()),
            }
        }
    }
    // A merge keeps what the owner of a partition gave it.
    let plain = place.path().join("plain");
    many_publications(place.path(), &plain, 2, false);
    let partition = table_files(&plain, Table::Samples).unwrap()[0].path.parent().unwrap().to_owned();
    std::fs::set_permissions(&partition, std::fs::Permissions::from_mode(0o2770)).unwrap();
    assert!(compact(&plain).unwrap().partitions > 0);
    assert_eq!(mode(&partition), 0o2770);
}

#[test]
fn drafts_of_killed_publishers_are_removed_by_the_next_publication() {
    let place = tempfile::tempdir().unwrap();
    let lake = place.path().join("lake");
    put(&[corpus("healthy_idle")], &lake, false);
    let file = table_files(&lake, Table::Samples).unwrap().remove(0).path;
    let draft = file.with_file_name(".part-n.parquet.4711.0123456789abcdef.tmp");
    std::fs::write(&draft, "PAR1").unwrap();
    put(&[corpus("healthy_idle")], &lake, false);
    assert!(!draft.exists() && file.exists());
}
