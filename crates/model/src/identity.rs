//! Who an event comes from in a distributed job: explicit values first, then metadata, then environment.

use serde_json::Value;

use crate::record::{get, integer, non_empty};
use crate::{Problem, Record};

/// Job, rank, local rank and world size of a process. A lone process is rank 0 of 1.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Identity {
    /// The scheduler's or launcher's name for the job.
    pub job_id: Option<String>,
    /// Rank over the whole job.
    pub rank: u64,
    /// Rank on this machine.
    pub local_rank: u64,
    /// Number of ranks; at least 1.
    pub world_size: u64,
}

impl Default for Identity {
    fn default() -> Self {
        Identity { job_id: None, rank: 0, local_rank: 0, world_size: 1 }
    }
}

/// Launchers in the order they are asked; the first whose rank and world size are both set wins.
const RANK_GROUPS: [[&str; 3]; 3] = [
    ["RANK", "LOCAL_RANK", "WORLD_SIZE"],
    ["OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_SIZE"],
    ["SLURM_PROCID", "SLURM_LOCALID", "SLURM_NTASKS"],
];
/// What the user states, before every launcher.
const OWN_JOB_KEY: &str = "STORMLOG_JOB_ID";
const ELASTIC_JOB_KEY: &str = "TORCHELASTIC_RUN_ID";
/// Schedulers, whose job may hold several launches.
const SCHEDULER_JOB_KEYS: [&str; 3] = ["SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID"];
/// Ray's name is that of a driver, which may launch torchrun; the name of PMIx is one of a launch of `mpirun`.
const OTHER_JOB_KEYS: [&str; 2] = ["RAY_JOB_ID", "PMIX_NAMESPACE"];
/// Launchers and schedulers that start a job again, and count it.
const ATTEMPT_KEYS: [&str; 2] = ["TORCHELASTIC_RESTART_COUNT", "SLURM_RESTART_COUNT"];
/// What torchrun calls a run without a name.
const UNNAMED: &str = "none";
/// Where the ranks of a run without a name meet: the same for all of them, and no other run meets there meanwhile. A later run may.
const MEETING: [&str; 2] = ["MASTER_ADDR", "MASTER_PORT"];
pub(crate) const IDENTITY_KEYS: [&str; 4] = ["job_id", "rank", "local_rank", "world_size"];

/// Looks a variable of the environment up.
pub type Env<'a> = dyn Fn(&str) -> Option<String> + 'a;

/// Where an identity is looked for. `Value::Null` is "not given".
#[derive(Default)]
pub struct IdentityInputs<'a> {
    /// Explicit values, in the order of job id, rank, local rank, world size.
    pub explicit: [Option<&'a Value>; 4],
    /// An event's metadata, asked for what is not explicit.
    pub metadata: Option<&'a Record>,
    /// The environment, asked last; `None` when it must not be consulted.
    pub env: Option<&'a Env<'a>>,
}

impl<'a> IdentityInputs<'a> {
    /// The identity fields of a record, nothing else.
    pub(crate) fn of_record(record: &'a Record) -> Self {
        IdentityInputs { explicit: IDENTITY_KEYS.map(|key| record.get(key)), ..IdentityInputs::default() }
    }
}

/// Resolves and checks an identity.
pub fn resolve_identity(inputs: &IdentityInputs<'_>) -> Result<Identity, Problem> {
    let mut raw: [Value; 4] = Default::default();
    for (index, key) in IDENTITY_KEYS.into_iter().enumerate() {
        raw[index] = match inputs.explicit[index] {
            Some(value) if !value.is_null() => value.clone(),
            _ => inputs.metadata.map_or(Value::Null, |metadata| get(metadata, key).clone()),
        };
    }
    if let Some(env) = inputs.env {
        fill_from_env(&mut raw, env)?;
    }
    normalize(&raw)
}

fn fill_from_env(raw: &mut [Value; 4], env: &Env<'_>) -> Result<(), Problem> {
    if raw[0].is_null() {
        raw[0] = job_of(env).map_or(Value::Null, Value::String);
    }
    // A complete identity leaves the launcher's variables unread, so that a broken one cannot hurt it.
    if raw[1..].iter().all(|value| !value.is_null()) {
        return Ok(());
    }
    for [rank_key, local_key, world_key] in RANK_GROUPS {
        let (Some(rank), Some(world)) = (env(rank_key), env(world_key)) else { continue };
        let local = env(local_key).filter(|text| !text.trim().is_empty()).unwrap_or_else(|| rank.clone());
        let found = [env_int(&rank, "rank")?, env_int(&local, "local_rank")?, env_int(&world, "world_size")?];
        check_range(&found[0], "rank", 0)?;
        check_range(&found[1], "local_rank", 0)?;
        check_range(&found[2], "world_size", 1)?;
        for (slot, value) in raw[1..].iter_mut().zip(found) {
            if slot.is_null() {
                *slot = value;
            }
        }
        return Ok(());
    }
    Ok(())
}

/// The job by its name, else by where its ranks meet. `none` is used only where the environment has neither, as in 0.4.3: the ranks
/// of a job are recognised by having the same.
fn job_of(env: &Env<'_>) -> Option<String> {
    let given = |key: &str| env(key).map(|text| text.trim().to_owned()).filter(|text| !text.is_empty());
    let elastic = given(ELASTIC_JOB_KEY);
    let is_unnamed = elastic.as_deref() == Some(UNNAMED);
    let named = elastic.clone().filter(|_| !is_unnamed);
    let other = || OTHER_JOB_KEYS.into_iter().find_map(given).filter(|_| !is_unnamed);
    let meeting = || {
        let [address, port] = MEETING.map(given);
        // Outside a job of several ranks the variables may be left from another program.
        (is_unnamed || is_one_of_several(env)).then_some(format!("{}:{}", address?, port?))
    };
    given(OWN_JOB_KEY)
        .or(named)
        .or_else(|| SCHEDULER_JOB_KEYS.into_iter().find_map(given))
        .or_else(other)
        .or_else(meeting)
        .or(elastic)
}

/// Whether the environment gives a rank among several, as `torch.distributed` reads it.
fn is_one_of_several(env: &Env<'_>) -> bool {
    let [rank, _, world] = RANK_GROUPS[0];
    let world_size = env(world).and_then(|text| text.trim().parse::<u64>().ok());
    env(rank).is_some() && world_size.is_some_and(|ranks| ranks > 1)
}

/// The address of a job whose id is only where its ranks met (`node-3:29500`): runs at other times may have met there too.
#[must_use]
pub fn meeting_address(job_id: &str) -> Option<&str> {
    let (address, port) = job_id.rsplit_once(':')?;
    (!address.is_empty() && port.parse::<u16>().is_ok()).then_some(address)
}

/// How often the job had been restarted when the process was started: 0 is the first attempt. `None` where no launcher counts.
#[must_use]
pub fn attempt(env: &Env<'_>) -> Option<u64> {
    ATTEMPT_KEYS.into_iter().find_map(|key| env(key)?.trim().parse().ok())
}

fn env_int(text: &str, field: &str) -> Result<Value, Problem> {
    let digits = text.trim().replace('_', "");
    digits.parse::<i64>().map(Value::from).map_err(|_| Problem::of(field, "must be an integer"))
}

fn check_range(value: &Value, field: &str, least: i128) -> Result<u64, Problem> {
    let number = integer(value, field)?;
    if number < least {
        return Err(Problem::of(field, &format!("must be >= {least}")));
    }
    u64::try_from(number).map_err(|_| Problem::of(field, "must be an integer"))
}

fn normalize(raw: &[Value; 4]) -> Result<Identity, Problem> {
    let [job_id, rank, local_rank, world_size] = raw;
    let job_id = if job_id.is_null() { None } else { Some(non_empty(job_id, "job_id")?.to_owned()) };
    let zero = Value::from(0);
    let one = Value::from(1);
    let rank_value = if rank.is_null() { &zero } else { rank };
    let local_value = if local_rank.is_null() { rank_value } else { local_rank };
    let world_value = if world_size.is_null() { &one } else { world_size };
    let rank = check_range(rank_value, "rank", 0)?;
    let local_rank = check_range(local_value, "local_rank", 0)?;
    let world_size = check_range(world_value, "world_size", 1)?;
    if rank >= world_size {
        return Err(Problem::of("rank", "must be < world_size"));
    }
    if local_rank >= world_size {
        return Err(Problem::of("local_rank", "must be < world_size"));
    }
    Ok(Identity { job_id, rank, local_rank, world_size })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn from_env(pairs: &[(&str, &str)]) -> Result<Identity, Problem> {
        let env = |key: &str| pairs.iter().find(|(name, _)| *name == key).map(|(_, v)| (*v).to_owned());
        resolve_identity(&IdentityInputs { env: Some(&env), ..Default::default() })
    }

    #[test]
    fn the_first_complete_launcher_wins() {
        let identity = from_env(&[
            ("RANK", "3"),
            ("OMPI_COMM_WORLD_RANK", "1"),
            ("OMPI_COMM_WORLD_SIZE", "4"),
            ("SLURM_JOB_ID", " 77 "),
        ]);
        let expected = Identity { job_id: Some("77".into()), rank: 1, local_rank: 1, world_size: 4 };
        assert_eq!(identity, Ok(expected));
    }

    #[test]
    fn blank_job_ids_are_skipped() {
        let identity = from_env(&[("TORCHELASTIC_RUN_ID", "  "), ("SLURM_JOB_ID", "9")]).unwrap();
        assert_eq!(identity.job_id.as_deref(), Some("9"));
        assert_eq!(from_env(&[]).unwrap(), Identity::default());
    }

    #[test]
    fn run_that_torchrun_has_no_name_for_is_known_by_where_it_meets() {
        let unnamed = ("TORCHELASTIC_RUN_ID", "none");
        let meets = [("MASTER_ADDR", "node-3"), ("MASTER_PORT", "29500")];
        let job = |pairs: &[(&str, &str)]| from_env(pairs).unwrap().job_id;
        assert_eq!(job(&[unnamed, meets[0], meets[1]]).as_deref(), Some("node-3:29500"));
        assert_eq!(job(&[unnamed, meets[0], meets[1], ("SLURM_JOB_ID", "77")]).as_deref(), Some("77"));
        assert_eq!(job(&[unnamed, meets[0]]).as_deref(), Some("none"));
        assert_eq!(job(&meets), None, "without torchrun these may be left from another program");
        let rank = [("RANK", "1"), ("WORLD_SIZE", "4")];
        assert_eq!(job(&[rank[0], rank[1], meets[0], meets[1]]).as_deref(), Some("node-3:29500"));
        assert_eq!(
            job(&[("RANK", "0"), ("WORLD_SIZE", "1"), meets[0], meets[1]]),
            None,
            "a rank alone meets no one"
        );
        assert_eq!(job(&rank), None);
        assert_eq!(meeting_address("node-3:29500"), Some("node-3"));
        assert_eq!(meeting_address("::1:29500"), Some("::1"));
        let others = ["77", "none", ":29500", "exp:one", "node:99999"].map(meeting_address);
        assert_eq!(others, [None; 5]);
    }

    #[test]
    fn job_has_the_id_that_the_user_states_then_that_of_launcher_and_scheduler() {
        let job = |pairs: &[(&str, &str)]| from_env(pairs).unwrap().job_id;
        let keys = [
            ("STORMLOG_JOB_ID", "own"),
            ("TORCHELASTIC_RUN_ID", "elastic"),
            ("SLURM_JOB_ID", "slurm"),
            ("PBS_JOBID", "12.pbs"),
            ("LSB_JOBID", "lsf"),
            ("RAY_JOB_ID", "ray"),
            ("PMIX_NAMESPACE", "prterun-node-3-41@1"),
        ];
        for (at, (_, expected)) in keys.iter().enumerate() {
            assert_eq!(job(&keys[at..]).as_deref(), Some(*expected));
        }
        let unnamed = [keys[0], ("TORCHELASTIC_RUN_ID", "none"), keys[2]];
        assert_eq!(job(&unnamed).as_deref(), Some("own"));
    }

    #[test]
    fn attempt_is_the_launchers_count_of_restarts() {
        let of = |pairs: &[(&str, &str)]| {
            attempt(&|key: &str| pairs.iter().find(|(name, _)| *name == key).map(|(_, v)| (*v).to_owned()))
        };
        assert_eq!(of(&[("TORCHELASTIC_RESTART_COUNT", "2"), ("SLURM_RESTART_COUNT", "1")]), Some(2));
        assert_eq!(of(&[("TORCHELASTIC_RESTART_COUNT", "many"), ("SLURM_RESTART_COUNT", " 1 ")]), Some(1));
        assert_eq!(of(&[]), None);
    }

    #[test]
    fn bad_values_are_reported() {
        let message = |pairs: &[(&str, &str)]| from_env(pairs).unwrap_err().message;
        assert_eq!(message(&[("RANK", "x"), ("WORLD_SIZE", "2")]), "rank must be an integer");
        assert_eq!(message(&[("RANK", "2"), ("WORLD_SIZE", "2")]), "rank must be < world_size");
        assert_eq!(message(&[("RANK", "0"), ("WORLD_SIZE", "0")]), "world_size must be >= 1");
        assert_eq!(message(&[("RANK", "-1"), ("WORLD_SIZE", "2")]), "rank must be >= 0");
    }

    #[test]
    fn a_complete_explicit_identity_leaves_the_environment_unread() {
        let env = |key: &str| (key == "RANK" || key == "WORLD_SIZE").then(|| "broken".to_owned());
        let (rank, world) = (json!(1), json!(2));
        let inputs = IdentityInputs {
            explicit: [None, Some(&rank), Some(&rank), Some(&world)],
            metadata: None,
            env: Some(&env),
        };
        assert_eq!(resolve_identity(&inputs).unwrap().rank, 1);
    }

    #[test]
    fn booleans_are_not_ranks() {
        let rank = json!(true);
        let inputs = IdentityInputs { explicit: [None, Some(&rank), None, None], ..Default::default() };
        assert_eq!(resolve_identity(&inputs).unwrap_err().message, "rank must be an integer");
    }
}
