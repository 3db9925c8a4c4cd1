"""`stormlog.jax` where JAX is not installed: importable, and one sentence where JAX is needed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import stormlog
from stormlog._jax.collector import JaxDeviceCollector
from stormlog._jax.preallocation import Preallocation, limit_bytes, peak_bytes, pool_bytes

PACKAGES = Path(stormlog.__file__).parent.parent
GIB = 1 << 30
# Of an H200 with JAX 0.11.2.
STATS = {
    "bytes_in_use": 80 * 1024 * 1024,
    "bytes_limit": 112583507968,
    "bytes_reserved": 0,
    "pool_bytes": 112583507968,
}


def run(code: str) -> str:
    hidden = (
        "import importlib.util as u; f = u.find_spec; "
        "u.find_spec = lambda n, *a: None if n == 'jax' else f(n, *a)"
    )
    command = [
        sys.executable,
        "-I",
        "-c",
        f"import sys; sys.path.insert(0, {str(PACKAGES)!r}); {hidden}; {code}",
    ]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


@pytest.mark.parametrize(
    "call",
    [
        "MemoryTracker()",
        "JAXMemoryProfiler()",
        "MemoryWatchdog()",
        "JAXProfiler()",
        "compiled_memory(abs, 1)",
    ],
)
def test_absent_jax_gives_the_command_that_installs_it(call: str) -> None:
    code = f"""
import stormlog.jax
try:
    stormlog.jax.{call}
except ImportError as error:
    print(error)
"""
    assert run(code) == "JAX is required for this feature. Install with: pip install 'stormlog[jax]'"


def test_absent_jax_is_information_and_not_an_error() -> None:
    code = (
        "from stormlog.jax import get_device_info, get_system_info; "
        "print(get_system_info()['jax_version'], get_device_info()['error'])"
    )
    assert run(code) == "Not installed JAX not available"


def test_preallocation_is_the_pool_and_not_use() -> None:
    default = Preallocation.of({})
    assert default == (True, 0.75, "default")
    sentence = default.sentence(STATS)
    assert sentence.startswith("JAX reserved 104.9 GiB at the start (XLA_PYTHON_CLIENT_PREALLOCATE")
    assert sentence.endswith("80.00 MiB of it is in use")


def test_preallocation_follows_the_environment() -> None:
    assert not Preallocation.of({"XLA_PYTHON_CLIENT_PREALLOCATE": "false"}).is_on
    # JAX itself takes only `false`, `False` and `0` for no.
    assert Preallocation.of({"XLA_PYTHON_CLIENT_PREALLOCATE": "no"}).is_on
    assert Preallocation.of({"XLA_PYTHON_CLIENT_MEM_FRACTION": ".5"}).fraction == 0.5
    assert Preallocation.of({"XLA_CLIENT_MEM_FRACTION": ".6"}).fraction == 0.6
    assert Preallocation.of({"XLA_PYTHON_CLIENT_MEM_FRACTION": "half"}).fraction == 0.75
    growing = Preallocation.of({"XLA_PYTHON_CLIENT_PREALLOCATE": "0"})
    assert pool_bytes({"bytes_in_use": 5, "bytes_limit": GIB}, growing) is None
    assert pool_bytes({"bytes_in_use": 5, "bytes_limit": GIB}, Preallocation.of({})) == GIB


@pytest.mark.parametrize(
    ("allocator", "is_on"),
    [
        ("default", True),
        ("BFC", True),
        ("cuda_async", True),
        ("platform", False),
        ("vmm", False),
        ("address", False),
    ],
)
def test_only_allocators_with_a_pool_preallocate(allocator: str, is_on: bool) -> None:
    asked = {"XLA_PYTHON_CLIENT_ALLOCATOR": allocator}
    assert Preallocation.of(asked).is_on is is_on
    assert not Preallocation.of({**asked, "XLA_PYTHON_CLIENT_PREALLOCATE": "false"}).is_on


def test_nothing_is_reserved_before_the_first_allocation() -> None:
    default = Preallocation.of({})
    untouched = {"bytes_in_use": 0, "peak_bytes_in_use": 0, "num_allocs": 0, "bytes_limit": GIB}
    for stats in ({**untouched, "pool_bytes": 0}, {**untouched, "bytes_reserved": 0}, untouched):
        assert pool_bytes(stats, default) == 0
        assert "reserved nothing of the device yet" in default.sentence(stats)
    # All freed again: the pool stays.
    assert pool_bytes({**untouched, "num_allocs": 1}, default) == GIB
    assert pool_bytes({**untouched, "num_allocs": 1, "pool_bytes": GIB}, default) == GIB


def test_the_pool_of_cuda_async_is_reserved_and_its_filling_is_not_use() -> None:
    pooled = Preallocation.of({"XLA_PYTHON_CLIENT_ALLOCATOR": "cuda_async"})
    # As on an H200 with JAX 0.11.2: the filling is not counted.
    used = {"bytes_in_use": 0, "peak_bytes_in_use": 4 << 20, "num_allocs": 3, "bytes_limit": GIB}
    assert (pool_bytes(used, pooled), peak_bytes(used, pooled)) == (GIB, 4 << 20)
    # A release that counts it: one allocation of the whole pool, freed again.
    started = {"bytes_in_use": 0, "peak_bytes_in_use": GIB, "num_allocs": 1, "bytes_limit": GIB}
    assert (pool_bytes(started, pooled), peak_bytes(started, pooled)) == (GIB, None)
    assert pooled.sentence(started).startswith("JAX reserved 1.00 GiB at the start")
    # The driver lets it grow up to the device, so the size asked for is not a limit.
    grown = {**started, "bytes_in_use": 2 * GIB, "peak_bytes_in_use": 3 * GIB}
    assert (pool_bytes(grown, pooled), peak_bytes(grown, pooled)) == (2 * GIB, 3 * GIB)
    assert limit_bytes(grown, pooled) is None
    growing = Preallocation.of(
        {"XLA_PYTHON_CLIENT_ALLOCATOR": "cuda_async", "XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
    )
    held = {"bytes_in_use": 5, "peak_bytes_in_use": 7, "bytes_limit": GIB}
    assert (pool_bytes(held, growing), peak_bytes(held, growing)) == (None, 7)


class StandInDevice:
    """A GPU by its counters alone, which JAX would report."""

    platform, device_kind, id, local_hardware_id = "gpu", "stand-in", 0, 0

    def __init__(self, stats: dict[str, int]) -> None:
        self.stats = stats

    def memory_stats(self) -> dict[str, int]:
        return dict(self.stats)


def test_a_sample_of_a_stand_in_device_has_the_pool_only_once_it_is_taken(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("ALLOCATOR", "PREALLOCATE"):
        monkeypatch.delenv(f"XLA_PYTHON_CLIENT_{name}", raising=False)
    device = StandInDevice({"bytes_in_use": 0, "peak_bytes_in_use": 0, "pool_bytes": 0, "bytes_limit": GIB})
    collector = JaxDeviceCollector(device)
    before = collector.sample()
    device.stats = {"bytes_in_use": 5, "peak_bytes_in_use": 9, "pool_bytes": GIB, "bytes_limit": GIB}
    after = collector.sample()
    assert (before.reserved_bytes, after.reserved_bytes) == (0, GIB)
    assert before.total_bytes == after.total_bytes == GIB
    assert collector.sample_with_diagnostics().facts["peak_bytes_in_use"] == 9


def test_a_sample_of_a_stand_in_device_with_cuda_async_has_no_limit_below_the_device(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("XLA_PYTHON_CLIENT_ALLOCATOR", "cuda_async")
    monkeypatch.delenv("XLA_PYTHON_CLIENT_PREALLOCATE", raising=False)
    device = StandInDevice({"bytes_in_use": 5, "peak_bytes_in_use": GIB, "num_allocs": 2, "bytes_limit": GIB})
    taken = JaxDeviceCollector(device).sample_with_diagnostics()
    assert taken.sample is not None
    assert (taken.sample.reserved_bytes, taken.sample.total_bytes) == (GIB, None)
    assert taken.facts["jax_preallocated"] == 1 and "peak_bytes_in_use" not in taken.facts
