"""The calls that must give the same result in stormlog 0.4.3 and in ours.

Run by both: by the tests in their own process, and by the interpreter named in STORMLOG_PEER_PYTHON. So it
must use the standard library and the public names of `stormlog` only, and nothing newer than Python 3.10.
"""

from __future__ import annotations

import dataclasses
from collections import OrderedDict
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType, SimpleNamespace
from typing import Any

from stormlog import telemetry

Case = Callable[[Path], Any]
CASES: dict[str, Case] = {}

SUPPORTS = (
    *("allocator_allocated", "allocator_reserved", "allocator_active", "allocator_inactive"),
    *("device_used", "device_free", "device_total", "native_allocator_history"),
    *("fragmentation_analysis", "allocator_attribution", "bounded_profiling"),
)


def capabilities(*denied: str, **changes: Any) -> dict[str, Any]:
    found: dict[str, Any] = {
        "backend": "cuda",
        "telemetry_collector": "stormlog.cuda_tracker",
        "sampling_source": "torch.cuda",
    }
    found.update({f"supports_{name}": name not in denied for name in SUPPORTS})
    found.update(changes)
    return found


def v4(**changes: Any) -> dict[str, Any]:
    record: dict[str, Any] = {
        "schema_version": 4,
        "session_id": "s-1",
        "timestamp_ns": 1_700_000_000_000_000_000,
        "event_type": "sample",
        "collector": "stormlog.cuda_tracker",
        "sampling_interval_ms": 100,
        "pid": 4242,
        "host": "node-1",
        "job_id": "job",
        "rank": 1,
        "local_rank": 0,
        "world_size": 2,
        "device_id": 0,
        "allocator_allocated_bytes": 100,
        "allocator_reserved_bytes": 200,
        "allocator_active_bytes": 110,
        "allocator_inactive_bytes": 20,
        "allocator_change_bytes": -7,
        "device_used_bytes": 300,
        "device_free_bytes": 700,
        "device_total_bytes": 1000,
        "context": "step",
        "metadata": {"memory_capabilities": capabilities(), "backend": "cuda", "note": [1, {"a": None}]},
    }
    return changed(record, changes)


def v3(**changes: Any) -> dict[str, Any]:
    return changed(v4(schema_version=3, metadata={"backend": "cuda"}), changes)


def v2(**changes: Any) -> dict[str, Any]:
    return changed(v3(schema_version=2, session_id=DROP), changes)


class _Drop:
    pass


DROP = _Drop()


def changed(record: dict[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    record.update(changes)
    return {key: value for key, value in record.items() if value is not DROP}


def call(name: str, function: Callable[..., Any], *args: Any, **options: Any) -> None:
    """Adds a case: one call."""
    if name in CASES:
        raise KeyError(f"two cases are named {name}")
    CASES[name] = lambda _: function(*args, **options)


def check(name: str, record: Any) -> None:
    """One record through both the validator and the reader."""
    call(f"validate/{name}", telemetry.validate_telemetry_record, record)
    call(f"read/{name}", telemetry.telemetry_event_from_record, record)


# ---- records of the schemas, whole and broken one rule at a time

for make in (v2, v3, v4):
    tag = make.__name__
    check(f"{tag}/whole", make())
    check(f"{tag}/ordered-dict", OrderedDict(make()))
    check(f"{tag}/proxy", MappingProxyType(make()))
    check(f"{tag}/without-identity", make(job_id=DROP, rank=DROP, local_rank=DROP, world_size=DROP))
    for field in ("timestamp_ns", "event_type", "host", "device_id", "context", "device_total_bytes"):
        check(f"{tag}/missing-{field}", make(**{field: DROP}))
    check(f"{tag}/missing-two", make(host=DROP, pid=DROP))
    check(f"{tag}/unknown-fields", make(zeta=1, alpha=2))
    for field in ("allocator_allocated_bytes", "allocator_reserved_bytes", "allocator_change_bytes"):
        check(f"{tag}/null-{field}", make(**{field: None}))
    for field in ("allocator_active_bytes", "allocator_inactive_bytes", "device_free_bytes"):
        check(f"{tag}/null-{field}", make(**{field: None}))
        check(f"{tag}/negative-{field}", make(**{field: -1}))
    check(f"{tag}/null-device_used_bytes", make(device_used_bytes=None))
    check(f"{tag}/null-device_total_bytes", make(device_total_bytes=None))
    check(f"{tag}/used-over-total", make(device_used_bytes=1001))
    check(f"{tag}/free-over-total", make(device_free_bytes=1001))

for field in (
    *("timestamp_ns", "sampling_interval_ms", "pid", "device_id", "rank", "local_rank", "world_size"),
    *("allocator_allocated_bytes", "allocator_change_bytes", "device_used_bytes", "device_total_bytes"),
):
    for label, value in {
        "text": "5",
        "bool": True,
        "float": 5.0,
        "list": [5],
        "object": SimpleNamespace(),
    }.items():
        check(f"v4/{field}-{label}", v4(**{field: value}))
for field in ("timestamp_ns", "sampling_interval_ms", "rank", "local_rank", "allocator_allocated_bytes"):
    check(f"v4/{field}-negative", v4(**{field: -1}))
for field in ("allocator_reserved_bytes", "device_used_bytes", "device_total_bytes"):
    check(f"v4/{field}-negative", v4(**{field: -1}))
check("v4/pid-unknown", v4(pid=-1))
check("v4/pid-too-low", v4(pid=-2))
check("v4/device-below-zero", v4(device_id=-5))
for field in ("session_id", "event_type", "collector", "host", "job_id"):
    for label, value in {"empty": "", "blank": "  ", "number": 5, "null": None}.items():
        check(f"v3/{field}-{label}", v3(**{field: value}))
check("v3/context-number", v3(context=5))
check("v3/context-empty", v3(context=""))
for label, value in {"list": [], "text": "{}", "null": None, "proxy": MappingProxyType({})}.items():
    check(f"v3/metadata-{label}", v3(metadata=value))
    check(f"v4/metadata-{label}", v4(metadata=value))
check("v4/world-size-zero", v4(world_size=0))
check("v4/rank-too-high", v4(rank=2))
check("v4/local-rank-too-high", v4(local_rank=2))
check("v4/rank-in-a-world-of-one", v4(world_size=1))
check("v4/rank-null", v4(rank=None))
check("v4/identity-in-metadata-is-not-asked", v3(rank=DROP, metadata={"rank": 1}))
check("v4/session-in-metadata", v3(session_id=None, metadata={"session_id": "inner"}))
for label, value in {"text": "4", "bool": True, "null": None, "float": 4.0, "1": 1, "5": 5, "-1": -1}.items():
    check(f"schema-version-{label}", v4(schema_version=value))
check("schema-version-missing", v4(schema_version=DROP))
check("v2/session-is-unknown", v2(session_id="s"))
check("v3/session-missing", v3(session_id=DROP))

for name in ("memory_capabilities",):
    for label, value in {
        "missing": DROP,
        "null": None,
        "list": [],
        "proxy": MappingProxyType(capabilities()),
    }.items():
        check(f"v4/capabilities-{label}", v4(metadata=changed({}, {name: value})))
check("v4/capabilities-lack-two", v4(metadata={"memory_capabilities": {"backend": "cuda"}}))
check("v4/capabilities-extra", v4(metadata={"memory_capabilities": capabilities(zz=1, aa=2)}))
for name in ("backend", "telemetry_collector", "sampling_source"):
    for label, value in {"blank": " ", "number": 1, "null": None}.items():
        caps = capabilities(**{name: value})
        check(f"v4/capability-{name}-{label}", v4(metadata={"memory_capabilities": caps}))
for name in SUPPORTS:
    caps = capabilities(**{f"supports_{name}": 1})
    check(f"v4/capability-{name}-number", v4(metadata={"memory_capabilities": caps}))
for name in SUPPORTS[:7]:
    check(f"v4/contradiction-{name}", v4(metadata={"memory_capabilities": capabilities(name)}))
only_change = {
    "allocator_allocated_bytes": None,
    "metadata": {"memory_capabilities": capabilities(SUPPORTS[0])},
}
check("v4/contradiction-change", v4(**only_change))
check("v4/nothing-known", v4(**dict.fromkeys([k for k in v4() if k.endswith("_bytes")])))
for label, value in {"list": [1], "text": "record", "none": None, "number": 4}.items():
    call(f"read/not-a-mapping-{label}", telemetry.telemetry_event_from_record, value)

# ---- making events


def fields_of(cls: Any) -> list[tuple[str, bool, bool]]:
    missing = dataclasses.MISSING
    return [
        (field.name, field.default is not missing, field.default_factory is not missing)
        for field in dataclasses.fields(cls)
    ]


def items_of(cls: Any, **values: Any) -> list[tuple[str, Any]]:
    return list(telemetry.telemetry_event_to_dict(cls(**values)).items())


for make, cls in (
    (v2, telemetry.TelemetryEventV2),
    (v3, telemetry.TelemetryEventV3),
    (v4, telemetry.TelemetryEventV4),
):
    tag = make.__name__
    call(f"make/{tag}", cls, **make())
    call(f"make/{tag}-to-dict", items_of, cls, **make())
    call(f"make/{tag}-negative", cls, **make(timestamp_ns=-1))
    call(f"make/{tag}-too-few", cls, schema_version=4)
    call(f"make/{tag}-wrong-version", cls, **make(schema_version=9))
    call(f"make/{tag}-no-metadata", cls, **make(metadata=None))
    call(f"make/{tag}-fields", fields_of, cls)
    call(f"make/{tag}-defaults", cls, **make(rank=DROP, local_rank=DROP, world_size=DROP, job_id=DROP))

# ---- where we differ on purpose: see compat_differences

check("v4/timestamp-huge", v4(timestamp_ns=2**64))
check("v4/timestamp-most", v4(timestamp_ns=2**64 - 1))
check("v4/change-huge", v4(allocator_change_bytes=-(2**63) - 1))
check("v4/change-most", v4(allocator_change_bytes=2**63))
check("v4/used-most", v4(device_used_bytes=2**64 - 1, device_total_bytes=2**64 - 1))
check("v4/pid-most", v4(pid=2**63))
check("v4/rank-huge", v4(rank=2**64, world_size=2**65))
check("v4/metadata-missing", v4(metadata=DROP))
check("v3/metadata-missing", v3(metadata=DROP))
check("v4/host-surrogate", v4(host="\udcff"))
check(
    "v4/metadata-surrogate",
    v4(metadata={"memory_capabilities": capabilities(), "path": "\udcff", "\udcfe": 1}),
)
for label, value in {"list": [1], "text": "record", "none": None}.items():
    call(f"validate/not-a-mapping-{label}", telemetry.validate_telemetry_record, value)
