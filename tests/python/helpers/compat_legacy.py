"""The table's records from before the schemas, and identities. Adds to the cases of `compat_cases`."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

from compat_cases import DROP, call, capabilities, changed, v3
from stormlog import telemetry


def read(name: str, record: Any, **options: Any) -> None:
    call(f"legacy/{name}", telemetry.telemetry_event_from_record, record, **options)


# ---- records from before the schemas

read(
    "torch",
    {
        "timestamp": 1.25,
        "event_type": "sample",
        "memory_allocated": 10,
        "memory_reserved": 20,
        "device_id": 0,
    },
)
read("torch-cpu", {"timestamp": 1.25, "memory_allocated": 10, "device_id": -1})
read("torch-change", {"timestamp": 3, "memory_allocated": 10, "memory_change": -4, "device_total": 64})
read(
    "tensorflow", {"timestamp": 1.5, "type": "sample", "memory_mb": 2.5, "device": "/GPU:1", "message": "hi"}
)
read("memory-mb-whole", {"timestamp": 2, "memory_mb": 3})
read("memory-mb-text", {"timestamp": 2, "memory_mb": "3"})
read("memory-mb-bool", {"timestamp": 2, "memory_mb": True})
for device in ("cpu", "CPU:0", "cuda:3", "/gpu", "/GPU:0", "cuda", "cuda:x", "a:b:7", "/device:GPU:2", ""):
    read(f"device-{device}", {"timestamp": 1, "device": device})
read("device-number", {"timestamp": 1, "device": 3})
read("used-only", {"timestamp": 1, "device_used_bytes": 50, "device_total_bytes": 80})
read("total-below-used", {"timestamp": 1, "memory_allocated": 50, "total_memory": 40})
read(
    "free-is-clamped-out",
    {"timestamp": 1, "memory_allocated": 50, "device_free_bytes": 90, "total_bytes": 80},
)
for name in ("total_memory", "device_total", "total_bytes"):
    read(f"total-{name}", {"timestamp": 1, "memory_allocated": 5, name: 80})
    read(f"total-metadata-{name}", {"timestamp": 1, "memory_allocated": 5, "metadata": {name: 80}})
    read(f"total-null-{name}", {"timestamp": 1, "memory_allocated": 5, name: None})
    read(f"total-text-{name}", {"timestamp": 1, "memory_allocated": 5, name: "80"})
for backend in ("mps", "ROCm ", "cuda", "cpu", "jax", 5):
    read(f"backend-{backend}", {"timestamp": 1, "memory_allocated": 5, "backend": backend})
    read(f"backend-metadata-{backend}", {"timestamp": 1, "metadata": {"backend": backend}})
for collector in ("gpumemprof.cuda_tracker", "tfmemprof.memory_tracker", " ", "", 5, None):
    read(f"collector-{collector}", {"timestamp": 1, "memory_allocated": 5, "collector": collector})
read("folded", {"timestamp": 1, "metadata": {"a": 1, "b": 2}, "metadata_b": 3, "metadata_": 4})
read("pid-host-metadata", {"timestamp": 1, "metadata": {"pid": 7, "host": "inner"}})
read("pid-host-record", {"timestamp": 1, "pid": 8, "host": "outer", "metadata": {"pid": 7, "host": "inner"}})
read("identity-metadata", {"timestamp": 1, "metadata": {"job_id": "j", "rank": 1, "world_size": 2, "k": 1}})
read(
    "identity-record", {"timestamp": 1, "rank": 1, "world_size": 4, "metadata": {"rank": 3, "local_rank": 2}}
)
read("identity-bad", {"timestamp": 1, "metadata": {"rank": 3}})
read("session-metadata", {"timestamp": 1, "metadata": {"session_id": "inner", "k": 1}})
read("session-default", {"timestamp": 1}, default_session_id="given")
read("session-derived-float", {"timestamp": 1700000000.123456, "host": "h", "pid": 3})
read("session-derived-ns", {"timestamp_ns": 12, "host": "h"})
read("session-number", {"timestamp": 1, "session_id": 5})
read("timestamp-missing", {"memory_mb": 1})
read("timestamp-text", {"timestamp": "1.5"})
read("timestamp-bool", {"timestamp": True})
read("timestamp-ns-float", {"timestamp_ns": 1.5})
read("timestamp-negative", {"timestamp": -1.5})
read("timestamp-large", {"timestamp": 4_000_000_000.75})
read("empty", {})
read("type-number", {"timestamp": 1, "type": 5})
read("type-null", {"timestamp": 1, "event_type": None})
read("type-both", {"timestamp": 1, "event_type": "a", "type": "b"})
read("context-both", {"timestamp": 1, "context": "a", "message": "b"})
read("context-number", {"timestamp": 1, "context": 5})
read("interval-own", {"timestamp": 1, "sampling_interval_ms": 250})
read("interval-default", {"timestamp": 1}, default_sampling_interval_ms=33)
read("interval-negative", {"timestamp": 1}, default_sampling_interval_ms=-1)
read("interval-text", {"timestamp": 1, "sampling_interval_ms": "5"})
read("collector-default", {"timestamp": 1}, default_collector="mine.cpu")
read("collector-default-blank", {"timestamp": 1}, default_collector=" ")
read("session-default-blank", {"timestamp": 1}, default_session_id="")
read("not-permitted", {"timestamp": 1}, permissive_legacy=False)
read("metadata-text", {"timestamp": 1, "metadata": "{}"})
read("metadata-null", {"timestamp": 1, "metadata": None})
read("metadata-proxy", {"timestamp": 1, "metadata": MappingProxyType({"k": 1})})
read(
    "metadata-objects", {"timestamp": 1, "metadata": {"when": (1, 2), "deep": {"x": {2}}, "big": 2**70, 3: 4}}
)
read("sampling-source-tuple", {"timestamp": 1, "metadata": {"sampling_source": (1, "a")}})
read(
    "capabilities-stated",
    {"timestamp": 1, "memory_allocated": 5, "metadata": {"memory_capabilities": capabilities()}},
)
read("capabilities-deny", {"timestamp": 1, "metadata": {"memory_capabilities": capabilities("device_used")}})
read("counters-own-names", changed(v3(schema_version=DROP), {}))
read("allocated-negative", {"timestamp": 1, "memory_allocated": -5})
read("allocated-bool", {"timestamp": 1, "memory_allocated": True})
read("extra-keys", {"timestamp": 1, "whatever": object, "more": 2**80})

# ---- where we differ on purpose: see compat_differences

read(
    "null-counters",
    {"timestamp": 1, "memory_allocated": None, "memory_reserved": None, "memory_change": None},
)
read("null-used", {"timestamp": 1, "device_used_bytes": None, "memory_allocated": 5})
read(
    "oom-bundle",
    {
        "timestamp": 2.0,
        "event_type": "sample",
        "session_id": "s",
        "device_id": 0,
        "backend": "cuda",
        "memory_allocated": 100,
        "memory_reserved": 200,
        "memory_change": -4,
        "active_memory": 90,
        "inactive_memory": 10,
        "device_used": 700,
        "device_free": 300,
        "device_total": 1000,
    },
)
read("timestamp-nan", {"timestamp": float("nan")})
read("timestamp-infinite", {"timestamp": float("inf")})
read("memory-mb-nan", {"timestamp": 1, "memory_mb": float("nan")})
read("allocated-huge", {"timestamp": 1, "memory_allocated": 2**64})

# ---- identity

resolve = telemetry.resolve_distributed_identity
PARTIAL = {"world_size": 9, "rank": None}
ENVIRONMENTS: dict[str, dict[str, str]] = {
    "none": {},
    "torch": {"RANK": "1", "LOCAL_RANK": "0", "WORLD_SIZE": "2"},
    "torch-no-local": {"RANK": "1", "WORLD_SIZE": "2"},
    "torch-blank-local": {"RANK": "1", "LOCAL_RANK": " ", "WORLD_SIZE": "2"},
    "torch-half": {"RANK": "1", "OMPI_COMM_WORLD_RANK": "2", "OMPI_COMM_WORLD_SIZE": "3"},
    "ompi": {"OMPI_COMM_WORLD_RANK": "2", "OMPI_COMM_WORLD_LOCAL_RANK": "1", "OMPI_COMM_WORLD_SIZE": "3"},
    "slurm": {"SLURM_PROCID": "5", "SLURM_LOCALID": "1", "SLURM_NTASKS": "8", "SLURM_JOB_ID": "77"},
    "elastic": {"RANK": "0", "WORLD_SIZE": "1", "TORCHELASTIC_RUN_ID": " run ", "SLURM_JOB_ID": "77"},
    "blank-job": {"TORCHELASTIC_RUN_ID": " ", "SLURM_JOB_ID": "9"},
    "unnamed-job": {"RANK": "0", "WORLD_SIZE": "1", "TORCHELASTIC_RUN_ID": "none"},
    "bad-rank": {"RANK": "one", "WORLD_SIZE": "2"},
    "bad-world": {"RANK": "1", "WORLD_SIZE": ""},
    "negative": {"RANK": "-1", "WORLD_SIZE": "2"},
    "zero-world": {"RANK": "0", "WORLD_SIZE": "0"},
    "too-high": {"RANK": "2", "WORLD_SIZE": "2"},
    "underscore": {"RANK": "1_0", "WORLD_SIZE": " 20 "},
    "plus": {"RANK": "+1", "WORLD_SIZE": "02"},
}
for label, env in ENVIRONMENTS.items():
    call(f"identity/env-{label}", resolve, env=env)
    call(f"identity/complete-over-{label}", resolve, rank=0, local_rank=0, world_size=4, env=env)
    call(f"identity/partial-over-{label}", resolve, job_id="mine", metadata=PARTIAL, env=env)
IDENTITIES: dict[str, dict[str, Any]] = {
    "nothing": {},
    "rank-alone": {"rank": 1},
    "rank-and-world": {"rank": 1, "world_size": 2},
    "metadata": {"metadata": {"rank": 1, "world_size": 2, "job_id": "m", "local_rank": 0}},
    "metadata-empty": {"metadata": {}},
    "explicit-over-metadata": {"rank": 0, "metadata": {"rank": 1, "world_size": 2}},
    "bool": {"rank": True},
    "text": {"rank": "1", "world_size": 2},
    "float": {"world_size": 2.0},
    "job-number": {"job_id": 5},
    "job-blank": {"job_id": " "},
    "local-too-high": {"rank": 0, "local_rank": 3, "world_size": 2},
    "negative-world": {"world_size": -1},
}
for label, arguments in IDENTITIES.items():
    call(f"identity/{label}", resolve, **arguments)
