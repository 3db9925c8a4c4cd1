//! The GPUs of this machine as their drivers report them, with the processes on each. Which devices there are is known by `collect::devices`.

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::time::{Duration, Instant};

use stormlog_collect::process::ProcessReader;
use stormlog_collect::{Collector, Roots};
use stormlog_collect::{Gpu, discover_gpus};
use stormlog_model::scrub;

/// A device may be added or split while we look.
const DISCOVERY_AGE: Duration = Duration::from_secs(60);
/// Processes of one device that are listed.
const MOST_PROCESSES: usize = 256;
/// Bytes of the list of users that are read.
const MOST_USERS: u64 = 1 << 20;

/// A GPU or a MIG instance.
#[derive(Debug, Clone, PartialEq)]
pub struct GpuRow {
    /// Its number.
    pub index: i64,
    /// Its model.
    pub name: Option<String>,
    /// The driver's id.
    pub uuid: Option<String>,
    /// Bytes in use, by the driver.
    pub used: Option<u64>,
    /// Bytes of the device.
    pub total: Option<u64>,
    /// Percent of the last period in which it computed.
    pub busy_percent: Option<u64>,
    /// Whether its memory is the host's.
    pub is_unified: bool,
    /// Those that hold most first; `None` where the driver has no list.
    pub processes: Option<Vec<GpuProcess>>,
}

/// A process on a GPU.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GpuProcess {
    /// Its number, as the driver reports it.
    pub pid: u32,
    /// Bytes that it holds there.
    pub used: Option<u64>,
    /// Its user; `None` where it cannot be seen from here.
    pub user: Option<String>,
    /// Its command, without secrets.
    pub command: Vec<String>,
}

/// The devices, asked again and again.
#[derive(Default)]
pub(crate) struct Gpus {
    known: Vec<Gpu>,
    discovered_at: Option<Instant>,
    /// By process and start: users and commands do not change.
    people: BTreeMap<u32, (u64, Option<String>, Vec<String>)>,
    users: Option<BTreeMap<u32, String>>,
}

impl Gpus {
    /// Reads all of them.
    pub(crate) fn look(&mut self) -> Vec<GpuRow> {
        if self.discovered_at.is_none_or(|at| at.elapsed() >= DISCOVERY_AGE) {
            self.known = discover_gpus(&Roots::default());
            self.discovered_at = Some(Instant::now());
        }
        let mut gpus = std::mem::take(&mut self.known);
        let rows = gpus.iter_mut().map(|gpu| self.row(gpu)).collect();
        self.known = gpus;
        let seen: Vec<u32> =
            self.people.keys().copied().filter(|pid| ProcessReader::open_frugal(*pid).is_ok()).collect();
        self.people.retain(|pid, _| seen.binary_search(pid).is_ok());
        rows
    }

    fn row(&mut self, gpu: &mut Gpu) -> GpuRow {
        let sample = gpu.sample().ok().map(|reading| reading.sample);
        let identity = gpu.identity().clone();
        let processes = gpu.processes().ok().map(|listed| {
            let mut rows: Vec<GpuProcess> = listed
                .into_iter()
                .take(MOST_PROCESSES)
                .map(|process| {
                    let (user, command) = self.person(process.pid);
                    GpuProcess { pid: process.pid, used: process.used, user, command }
                })
                .collect();
            rows.sort_by_key(|process| (std::cmp::Reverse(process.used), process.pid));
            rows
        });
        GpuRow {
            index: identity.device_id,
            name: identity.name,
            uuid: identity.uuid,
            used: sample.as_ref().and_then(|sample| sample.used),
            total: sample.as_ref().and_then(|sample| sample.total),
            busy_percent: gpu.vitals().busy_percent,
            is_unified: identity.unified,
            processes,
        }
    }

    /// User and command of a process that can be seen from here.
    fn person(&mut self, pid: u32) -> (Option<String>, Vec<String>) {
        let Ok(reader) = ProcessReader::open_frugal(pid) else { return (None, Vec::new()) };
        let start = reader.start_time();
        if let Some((known, user, command)) = self.people.get(&pid)
            && *known == start
        {
            return (user.clone(), command.clone());
        }
        let arguments = reader.command_line().map(|line| line.arguments).unwrap_or_default();
        let command = scrub::command(&arguments);
        let owner = std::fs::metadata(format!("/proc/{pid}")).ok().map(|found| found.uid());
        let user = owner.map(|uid| self.user(uid));
        self.people.insert(pid, (start, user.clone(), command.clone()));
        (user, command)
    }

    /// The name of a user in the machine's own list, else the number.
    fn user(&mut self, uid: u32) -> String {
        let users = self.users.get_or_insert_with(read_users);
        users.get(&uid).cloned().unwrap_or_else(|| uid.to_string())
    }
}

fn read_users() -> BTreeMap<u32, String> {
    use std::io::Read;
    let mut text = String::new();
    if let Ok(file) = stormlog_files::open_regular(std::path::Path::new("/etc/passwd")) {
        // A list that is not text has no names.
        let _ = file.take(MOST_USERS).read_to_string(&mut text);
    }
    let entry = |line: &str| {
        let mut fields = line.split(':');
        let (name, uid) = (fields.next()?, fields.nth(1)?);
        Some((uid.parse().ok()?, name.to_owned()))
    };
    text.lines().filter_map(entry).collect()
}
