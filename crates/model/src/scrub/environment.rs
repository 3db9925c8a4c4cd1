//! Which variables of an environment are recorded with their values. All others are recorded by name only: a deny-list can never be complete.

use crate::scrub::names::is_secret_name;
use crate::scrub::text::value;

/// Variables whose values decide how memory is used, which job it is, or where libraries come from.
const NAMES: [&str; 38] = [
    "RANK",
    "LOCAL_RANK",
    "WORLD_SIZE",
    "LOCAL_WORLD_SIZE",
    "GROUP_RANK",
    "ROLE_RANK",
    "NODE_RANK",
    "MASTER_ADDR",
    "MASTER_PORT",
    "NODELIST",
    "LD_PRELOAD",
    "LD_LIBRARY_PATH",
    "PATH",
    "PWD",
    "SHELL",
    "LANG",
    "LANGUAGE",
    "TZ",
    "TERM",
    "HOSTNAME",
    "POD_NAME",
    "POD_NAMESPACE",
    "NODE_NAME",
    "VIRTUAL_ENV",
    "CONDA_DEFAULT_ENV",
    "CONDA_PREFIX",
    "TMPDIR",
    "XDG_CACHE_HOME",
    "CI",
    "NO_COLOR",
    "TOKENIZERS_PARALLELISM",
    "OPENBLAS_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
    "GOMAXPROCS",
    "RAYON_NUM_THREADS",
    "TZDIR",
    "DEBUGINFOD_URLS",
];

/// Beginnings of such names.
const STARTS: [&str; 33] = [
    "PYTORCH_",
    "TORCH_",
    "TORCHINDUCTOR_",
    "TORCHELASTIC_",
    "CUDA_",
    "CUBLAS_",
    "CUDNN_",
    "NVIDIA_",
    "HIP_",
    "ROCR_",
    "ROCM_",
    "HSA_",
    "NCCL_",
    "RCCL_",
    "GLOO_",
    "TF_",
    "XLA_",
    "JAX_",
    "OMP_",
    "KMP_",
    "GOMP_",
    "MKL_",
    "MALLOC_",
    "MIMALLOC_",
    "JE_MALLOC_",
    "TCMALLOC_",
    "GLIBC_TUNABLES",
    "PYTHON",
    "SLURM_",
    "PMI_",
    "OMPI_COMM_WORLD_",
    "STORMLOG",
    "LC_",
];

/// Longer values are cut.
const LONGEST: usize = 4096;

/// Whether a variable's value is recorded.
#[must_use]
pub fn is_recorded_variable(name: &str) -> bool {
    let is_listed = NAMES.contains(&name) || STARTS.iter().any(|start| name.starts_with(start));
    is_listed && (name == "PWD" || !is_secret_name(name))
}

/// A variable's value as it may be recorded; `None`: its name only.
#[must_use]
pub fn variable(name: &str, text: &str) -> Option<String> {
    is_recorded_variable(name).then(|| value(name, text).chars().take(LONGEST).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_of_memory_are_recorded_and_others_by_name_only() {
        assert_eq!(variable("PYTORCH_CUDA_ALLOC_CONF", "x:True").as_deref(), Some("x:True"));
        assert_eq!(variable("TOKENIZERS_PARALLELISM", "false").as_deref(), Some("false"));
        for name in [
            "DATABASE_URL",
            "ANYTHING",
            "HOME",
            "SLURM_JWT",
            "PIP_INDEX_URL",
            "STORMLOG_TOKEN",
            "PYTHON_KEYRING_PASS",
        ] {
            assert_eq!(variable(name, "hush"), None, "{name}");
        }
        let proxy = variable("CUDA_X", "https://me:hush@host/").unwrap_or_default();
        assert!(!proxy.contains("hush"), "{proxy}");
    }
}
