//! How a process was launched, by the environment that torchrun, SLURM, Ray or systemd gave it: the part of a run's identity that schedulers and people know.

use serde::{Deserialize, Serialize};

use crate::identity::{Env, IdentityInputs, attempt, resolve_identity};

/// What is known of a launch; what is not is left out of files.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Launch {
    /// The scheduler's or launcher's name for the job.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub job_id: Option<String>,
    /// SLURM's number of the step in the job: `0`, `batch`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub step_id: Option<String>,
    /// Rank over the whole job, where it has several.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rank: Option<u64>,
    /// Number of ranks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub world_size: Option<u64>,
    /// How often the job had been restarted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attempt: Option<u64>,
    /// What runs of the same job over time have in common: `STORMLOG_JOB_NAME`, else SLURM's name for the job.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub job_name: Option<String>,
    /// Version of the job's code or configuration, as the user states it in `STORMLOG_JOB_VERSION`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub job_version: Option<String>,
    /// systemd's name for this run of the unit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub invocation_id: Option<String>,
}

impl Launch {
    /// Of a process with this environment; `None` where nothing launched it but a user.
    #[must_use]
    pub fn of(env: &Env<'_>) -> Option<Self> {
        let text = |key: &str| env(key).map(|text| text.trim().to_owned()).filter(|text| !text.is_empty());
        let inputs = IdentityInputs { env: Some(env), ..IdentityInputs::default() };
        let identity = resolve_identity(&inputs).unwrap_or_default();
        let is_ranked = identity.world_size > 1 || env("RANK").is_some() || env("SLURM_PROCID").is_some();
        let launch = Launch {
            job_id: identity.job_id,
            step_id: text("SLURM_STEP_ID").filter(|_| text("SLURM_JOB_ID").is_some()).map(step_name),
            rank: is_ranked.then_some(identity.rank),
            world_size: is_ranked.then_some(identity.world_size),
            attempt: attempt(env),
            job_name: text("STORMLOG_JOB_NAME").or_else(|| text("SLURM_JOB_NAME")),
            job_version: text("STORMLOG_JOB_VERSION"),
            invocation_id: text("INVOCATION_ID"),
        };
        (launch != Launch::default()).then_some(launch)
    }

    /// `job 42.0 · rank 1/8 · attempt 2`; empty where no scheduler is known.
    #[must_use]
    pub fn words(&self) -> String {
        let step = self.step_id.as_ref().map(|step| format!(".{step}")).unwrap_or_default();
        let mut words = Vec::new();
        words.extend(self.job_id.as_ref().map(|job| format!("job {job}{step}")));
        words.extend(self.rank.zip(self.world_size).map(|(rank, size)| format!("rank {rank}/{size}")));
        words.extend(self.attempt.map(|attempt| format!("attempt {attempt}")));
        words.join(" · ")
    }
}

/// SLURM numbers the steps that are not of `srun` from the top of 32 bits.
fn step_name(number: String) -> String {
    match number.as_str() {
        "4294967291" => "batch".to_owned(),
        "4294967290" => "interactive".to_owned(),
        "4294967292" => "extern".to_owned(),
        _ => number,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(pairs: &[(&str, &str)]) -> Option<Launch> {
        Launch::of(&|key: &str| pairs.iter().find(|(name, _)| *name == key).map(|(_, v)| (*v).to_owned()))
    }

    #[test]
    fn task_of_slurm_is_known_by_job_step_and_rank() {
        let slurm =
            [("SLURM_JOB_ID", "42"), ("SLURM_STEP_ID", "0"), ("SLURM_PROCID", "1"), ("SLURM_NTASKS", "8")];
        let launch = of(&slurm).unwrap();
        assert_eq!(launch.words(), "job 42.0 · rank 1/8");
        let requeued =
            of(&[slurm[0], ("SLURM_STEP_ID", "4294967291"), ("SLURM_RESTART_COUNT", "2")]).unwrap();
        assert_eq!(requeued.words(), "job 42.batch · attempt 2");
    }

    #[test]
    fn rank_of_torchrun_has_its_attempt() {
        let torchrun = [
            ("TORCHELASTIC_RUN_ID", "j"),
            ("RANK", "0"),
            ("WORLD_SIZE", "1"),
            ("TORCHELASTIC_RESTART_COUNT", "0"),
        ];
        assert_eq!(of(&torchrun).unwrap().words(), "job j · rank 0/1 · attempt 0");
    }

    #[test]
    fn job_has_the_name_and_version_that_the_user_states() {
        let named =
            of(&[("STORMLOG_JOB_NAME", "llama"), ("STORMLOG_JOB_VERSION", "v2"), ("SLURM_JOB_NAME", "x")]);
        let launch = named.unwrap();
        assert_eq!((launch.job_name.as_deref(), launch.job_version.as_deref()), (Some("llama"), Some("v2")));
    }

    #[test]
    fn program_that_a_user_started_has_no_launch() {
        assert_eq!(of(&[("HOME", "/root"), ("INVOCATION_ID", " ")]), None);
        assert_eq!(of(&[("INVOCATION_ID", "8a")]).unwrap().words(), "");
    }
}
