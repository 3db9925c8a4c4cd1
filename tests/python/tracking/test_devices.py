"""Device collectors: the contract, and PyTorch's through a module that says it is a stand-in."""

from __future__ import annotations

import dataclasses
import sys
import types
from collections.abc import Iterator
from typing import Any

import pytest
import torch_stand_in
from stormlog.collector_health import CollectorHealthState, collector_retry_delay_seconds
from stormlog.device_collectors import (
    CPUDeviceCollector,
    CudaDeviceCollector,
    DeviceMemoryCapabilities,
    DeviceMemorySample,
    MPSDeviceCollector,
    ROCmDeviceCollector,
    build_device_memory_collector,
    detect_torch_runtime_backend,
    validate_device_memory_sample,
)
from stormlog.utils import check_memory_fragmentation, get_gpu_info, get_system_info, memory_summary

GB = 1 << 30


@pytest.fixture
def torch(monkeypatch: pytest.MonkeyPatch) -> Iterator[types.ModuleType]:
    module = torch_stand_in.make()
    monkeypatch.setitem(sys.modules, "torch", module)
    yield module


def capabilities(**flags: bool) -> DeviceMemoryCapabilities:
    return DeviceMemoryCapabilities("x", "x.collector", "x.source", **flags)


def test_used_is_what_the_driver_says(torch: types.ModuleType) -> None:
    collector = build_device_memory_collector(0)
    assert isinstance(collector, CudaDeviceCollector) and collector.is_available()
    sample = collector.sample()
    # 2 GiB allocated of 3 GiB reserved, but the driver has 5 of 16 in use: 2 GiB are of no known allocator.
    assert (sample.allocated_bytes, sample.reserved_bytes) == (2 * GB, 3 * GB)
    assert (sample.used_bytes, sample.free_bytes, sample.total_bytes) == (5 * GB, 11 * GB, 16 * GB)
    assert (sample.active_bytes, sample.inactive_bytes, sample.device_id) == (2 * GB, GB, 0)
    validate_device_memory_sample(sample, collector.capabilities())


def test_a_part_that_fails_is_named(torch: Any) -> None:
    def refuse(device: object) -> None:
        raise RuntimeError("refused")

    torch.cuda.mem_get_info = refuse
    collector = build_device_memory_collector("cuda:0")
    result = collector.sample_with_diagnostics()
    assert result.is_partial and result.sample is not None and result.sample.used_bytes is None
    assert set(result.partial_fields) == {"device_used_bytes", "device_free_bytes", "device_total_bytes"}
    validate_device_memory_sample(
        result.sample, collector.capabilities(), partial_fields=result.partial_fields
    )
    torch.cuda.memory_allocated = refuse
    result = collector.sample_with_diagnostics()
    assert result.is_core_failure and result.core_error == "refused"
    with pytest.raises(RuntimeError, match="refused"):
        collector.sample()


def test_backends_are_distinguished(torch: Any) -> None:
    assert detect_torch_runtime_backend() == "cuda"
    torch.version.hip = "6.0"
    assert detect_torch_runtime_backend() == "rocm"
    rocm = build_device_memory_collector()
    assert isinstance(rocm, ROCmDeviceCollector)
    assert rocm.capabilities().telemetry_collector == "stormlog.rocm_tracker"
    torch.cuda.is_available = lambda: False
    assert detect_torch_runtime_backend() == "cpu"
    torch.backends.mps.is_available = lambda: True
    mps = build_device_memory_collector()
    assert isinstance(mps, MPSDeviceCollector)
    sample = mps.sample()
    assert (sample.allocated_bytes, sample.used_bytes, sample.total_bytes) == (GB, 2 * GB, 8 * GB)
    validate_device_memory_sample(sample, mps.capabilities())
    with pytest.raises(ValueError, match="Integer device IDs"):
        build_device_memory_collector(0)


def test_without_torch_there_is_the_host() -> None:
    assert "torch" not in sys.modules
    assert detect_torch_runtime_backend() == "cpu"
    collector = build_device_memory_collector()
    assert isinstance(collector, CPUDeviceCollector) and collector.name() == "cpu"
    sample = collector.sample()
    assert sample.device_id == -1 and sample.used_bytes and sample.total_bytes
    validate_device_memory_sample(sample, collector.capabilities())
    with pytest.raises(ImportError, match=r"stormlog\[torch\]"):
        build_device_memory_collector("cuda")
    with pytest.raises(ImportError, match=r"stormlog\[torch\]"):
        get_gpu_info()


def test_capabilities_hold_together() -> None:
    with pytest.raises(ValueError, match="must support allocator allocated or device used"):
        capabilities()
    with pytest.raises(ValueError, match="supports_fragmentation_analysis"):
        capabilities(supports_device_used=True, supports_fragmentation_analysis=True)
    with pytest.raises(ValueError, match="backend must be a non-empty string"):
        DeviceMemoryCapabilities(" ", "x", "x", supports_device_used=True)
    older = DeviceMemoryCapabilities.from_mapping({"backend": "xpu"})
    assert older.supports_allocator_inactive and not older.supports_device_total
    assert older.to_metadata()["telemetry_collector"] == "legacy.unknown"
    assert dict(older) == older.to_metadata() and older["backend"] == older.backend == "xpu"


SAMPLE = DeviceMemorySample(None, None, 5, None, 10, None, None, 0)


@pytest.mark.parametrize(
    ("change", "partial", "message"),
    [
        ({"used_bytes": -1}, (), "device_used_bytes must be >= 0"),
        ({"used_bytes": None}, (), "device_used_bytes is missing without"),
        ({"used_bytes": 5, "allocated_bytes": 1}, (), "declares it unsupported"),
        ({}, ("device_used_bytes",), "populated but marked partial"),
        ({}, ("nothing",), "unknown partial sample fields: nothing"),
        ({}, ("device_free_bytes",), "unsupported and must not be marked partial"),
        ({"used_bytes": 11}, (), "device_used_bytes cannot exceed device_total_bytes"),
        (
            {"used_bytes": None, "total_bytes": None},
            ("device_used_bytes", "device_total_bytes"),
            "no supported measurements",
        ),
    ],
)
def test_samples_are_held_to_their_capabilities(
    change: dict[str, int | None], partial: tuple[str, ...], message: str
) -> None:
    sample = dataclasses.replace(SAMPLE, **change)  # type: ignore[arg-type]
    can = capabilities(supports_device_used=True, supports_device_total=True)
    with pytest.raises(ValueError, match=message):
        validate_device_memory_sample(sample, can, partial_fields=partial)


def test_health_and_pauses() -> None:
    with pytest.raises(ValueError, match="Unsupported collector health status: ill"):
        CollectorHealthState(status="ill")
    state = CollectorHealthState(partial_fields=("a", "", "a", "b"))
    assert state.to_dict()["collector_partial_fields"] == ["a", "b"]
    pauses = [
        collector_retry_delay_seconds(n, initial_delay_s=1.0, factor=2.0, max_delay_s=30.0)
        for n in (0, 1, 2, 3, 6, 5000)
    ]
    assert pauses == [0.0, 1.0, 2.0, 4.0, 30.0, 30.0]
    assert collector_retry_delay_seconds(3, initial_delay_s=9, factor=1, max_delay_s=5) == 5


def test_utils_know_the_gpu(torch: types.ModuleType) -> None:
    info = get_gpu_info("cuda:0")
    assert info["total_memory"] == 16 * GB and info["memory_stats"]["inactive_bytes"] == GB
    state = check_memory_fragmentation()
    assert state["fragmentation_ratio"] == pytest.approx(1 / 3)
    assert state["inactive_memory_formatted"] == "1.00 GB"
    assert "Fragmentation: 33.3%" in memory_summary()
    system = get_system_info()
    assert system["detected_backend"] == "cuda" and system["cuda_device_count"] == 1
