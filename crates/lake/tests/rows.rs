//! The rows of a recorded run: what the tables say is what the other readers say.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

use std::path::{Path, PathBuf};

use stormlog_catalog::run::{Run, RunDirectory};
use stormlog_lake::rows::{Problem, Receiver, Recordings, Stop};
use stormlog_lake::schema::Table;
use stormlog_lake::{Cell, DeathRow, FindingRow, HolderRow, ProcessRow, Role, Row, SampleRow};

#[derive(Default)]
struct Kept {
    samples: Vec<SampleRow>,
    processes: Vec<ProcessRow>,
    deaths: Vec<DeathRow>,
    findings: Vec<FindingRow>,
    holders: Vec<HolderRow>,
    problems: Vec<Problem>,
}

impl Receiver for Kept {
    fn sample(&mut self, row: SampleRow) -> Result<(), Stop> {
        self.samples.push(row);
        Ok(())
    }

    fn process(&mut self, row: ProcessRow) -> Result<(), Stop> {
        self.processes.push(row);
        Ok(())
    }

    fn death(&mut self, row: DeathRow) -> Result<(), Stop> {
        self.deaths.push(row);
        Ok(())
    }

    fn finding(&mut self, row: FindingRow) -> Result<(), Stop> {
        self.findings.push(row);
        Ok(())
    }

    fn holder(&mut self, row: HolderRow) -> Result<(), Stop> {
        self.holders.push(row);
        Ok(())
    }

    fn problem(&mut self, problem: Problem) -> Result<(), Stop> {
        self.problems.push(problem);
        Ok(())
    }
}

fn corpus(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/corpus/recordings").join(name)
}

fn read(path: &Path) -> Kept {
    let mut kept = Kept::default();
    for recording in Recordings::at(&[path.to_owned()]).unwrap().runs {
        recording.read(&mut kept).unwrap();
    }
    kept
}

fn by_name<'a>(row: &'a dyn Row, name: &str) -> Cell<'a> {
    row.cell(row.table().column(name).unwrap())
}

#[test]
fn rows_of_a_run_are_those_of_its_processes_samples_findings_and_holders() {
    let path = corpus("leak_after_imports");
    let kept = read(&path);
    let run = Run::load(&RunDirectory::open(&path).unwrap()).unwrap().unwrap();
    assert_eq!(kept.processes.len(), run.processes.len());
    let main = kept.processes.iter().find(|row| row.is_root).unwrap();
    assert_eq!(main.process.role, Role::Root);
    assert_eq!(by_name(main, "job_id"), Cell::Text(&run.id), "a run without a launcher is a job of its own");
    assert!(main.peaks.host.unwrap().0 >= run.processes[0].peak_rss_bytes.unwrap_or(0));
    assert_eq!(kept.samples.len() as u64, kept.processes.iter().map(|row| row.peaks.samples).sum::<u64>());
    let highest = kept.samples.iter().filter_map(|row| match by_name(row, "device_used_bytes") {
        Cell::Integer(bytes) if by_name(row, "device") == Cell::Integer(-1) => Some(bytes),
        _ => None,
    });
    assert!(i64::try_from(main.peaks.host.unwrap().0).unwrap() >= highest.max().unwrap());
    assert!(kept.findings.iter().any(|row| row.finding.kind == "leak" || row.finding.kind == "growth"));
    assert!(kept.holders.iter().any(|row| row.table() == Table::HeapHolders && row.holder.line > 0));
    assert!(kept.deaths.is_empty() && kept.problems.is_empty(), "{:?} {:?}", kept.deaths, kept.problems);
}

#[test]
fn every_required_column_of_every_row_has_a_value_of_its_kind() {
    let kept = read(&corpus("leak_after_imports"));
    let mut rows: Vec<&dyn Row> = Vec::new();
    rows.extend(kept.samples.iter().map(|row| row as &dyn Row));
    rows.extend(kept.processes.iter().map(|row| row as &dyn Row));
    rows.extend(kept.findings.iter().map(|row| row as &dyn Row));
    rows.extend(kept.holders.iter().map(|row| row as &dyn Row));
    for row in rows {
        for (at, column) in row.table().columns().iter().enumerate() {
            use stormlog_lake::schema::Kind;
            let fits = match row.cell(at) {
                Cell::Null => column.is_optional,
                Cell::Integer(_) => matches!(column.kind, Kind::Integer | Kind::Time),
                Cell::Float(_) => column.kind == Kind::Float,
                Cell::Text(_) => column.kind == Kind::Text,
                Cell::Boolean(_) => column.kind == Kind::Boolean,
            };
            assert!(fits, "{:?}.{}: {:?}", row.table(), column.name, row.cell(at));
        }
    }
}
