"""Telemetry events from Python, beyond what 0.4.3 does: objects that survive, threads, pickles, errors."""

from __future__ import annotations

import copy
import dataclasses
import json
import os
import pickle
import threading
from collections import ChainMap, UserDict
from collections.abc import Callable
from enum import Enum, IntEnum
from pathlib import Path

import pytest
import stormlog.telemetry as telemetry
from compat_cases import capabilities, v2, v3, v4
from stormlog import session

Write = Callable[..., Path]


class Unknown:
    """Nothing JSON could hold."""


def test_metadata_keeps_the_callers_objects() -> None:
    thing = Unknown()
    inner = {"deep": [thing]}
    stated = capabilities()
    record = v4(
        metadata={"memory_capabilities": stated, "thing": thing, "inner": inner, "wide": 2**200, 7: 8}
    )
    event = telemetry.telemetry_event_from_record(record)
    assert event.metadata["thing"] is thing and event.metadata["inner"] is inner
    assert event.metadata["memory_capabilities"] is stated
    assert event.metadata["wide"] == 2**200 and event.metadata[7] == 8  # type: ignore[index]
    assert event.metadata is not record["metadata"]


def test_the_record_is_not_changed() -> None:
    for record in (v2(), v3(), v4(), {"timestamp": 1, "metadata": {"rank": 0}, "metadata_a": 1}):
        before = copy.deepcopy(record)
        telemetry.telemetry_event_from_record(record)
        assert record == before


def test_a_folded_column_wins_and_keeps_its_object() -> None:
    thing = Unknown()
    event = telemetry.telemetry_event_from_record({"timestamp": 1, "metadata": {"a": 1}, "metadata_a": thing})
    assert event.metadata["a"] is thing


@pytest.mark.parametrize("wrap", [dict, UserDict, lambda record: ChainMap({}, record)])
def test_any_mapping_will_do(wrap: Callable[[dict[str, object]], dict[str, object]]) -> None:
    assert telemetry.telemetry_event_from_record(wrap(v4())) == telemetry.TelemetryEventV4(**v4())
    telemetry.validate_telemetry_record(wrap(v3()))


def test_enums_count_as_what_they_are() -> None:
    class Rank(IntEnum):
        FIRST = 0

    class Kind(str, Enum):  # noqa: UP042 (the older spelling must work as well)
        SAMPLE = "sample"

    event = telemetry.telemetry_event_from_record(v4(rank=Rank.FIRST, event_type=Kind.SAMPLE))
    assert event.rank == 0 and event.event_type == "sample"


def test_an_event_is_an_ordinary_dataclass() -> None:
    event = telemetry.TelemetryEventV4(**v4())
    read = telemetry.telemetry_event_from_record(v4())
    assert read == event and repr(read) == repr(event)
    assert dataclasses.asdict(read) == dataclasses.asdict(event)
    assert vars(read) == vars(event) and list(vars(read)) == list(vars(event))
    assert dataclasses.replace(read, context="other").context == "other"
    with pytest.raises(ValueError, match="pid must be >= -1"):
        dataclasses.replace(read, pid=-9)
    read.pid = -9  # as in 0.4.3, only making one checks
    with pytest.raises(TypeError):
        hash(read)


def test_each_event_has_metadata_of_its_own() -> None:
    first = telemetry.TelemetryEventV2(**{**v2(), "metadata": {}})
    defaults = {key: value for key, value in v2().items() if key != "metadata"}
    assert (
        telemetry.TelemetryEventV2(**defaults).metadata is not telemetry.TelemetryEventV2(**defaults).metadata
    )
    assert first.metadata == {}


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_events_pickle(protocol: int) -> None:
    for event in (telemetry.telemetry_event_from_record(v4()), telemetry.TelemetryEventV2(**v2())):
        again = pickle.loads(pickle.dumps(event, protocol))
        assert again == event and type(again) is type(event)
        assert type(event).__module__ == "stormlog.telemetry"


def test_the_object_form_round_trips() -> None:
    event = telemetry.telemetry_event_from_record(v4())
    record = telemetry.telemetry_event_to_dict(event)
    assert record == v4() and list(record) == list(v4())
    assert record["metadata"] is not event.metadata
    assert telemetry.telemetry_event_from_record(record) == event


def test_identity_reads_the_real_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "3")
    monkeypatch.setenv("WORLD_SIZE", "4")
    expected = {"job_id": None, "rank": 3, "local_rank": 3, "world_size": 4}
    assert telemetry.resolve_distributed_identity(env=os.environ) == expected
    assert telemetry.resolve_distributed_identity()["rank"] == 0


def test_field_sets_are_those_of_the_schemas() -> None:
    required = tuple(key for key in v4() if key not in telemetry.OPTIONAL_V4_FIELDS)
    assert required == telemetry.REQUIRED_V4_FIELDS
    assert frozenset(v4()) == telemetry.KNOWN_V4_FIELD_SET
    assert frozenset(v2()) == telemetry.KNOWN_V2_FIELD_SET


def test_a_missing_file_is_what_the_system_says(tmp_path: Path) -> None:
    missing = tmp_path / "missing.json"
    with pytest.raises(FileNotFoundError) as caught:
        telemetry.load_telemetry_sessions(missing)
    assert caught.value.errno == 2 and caught.value.filename == str(missing)


def test_an_unreadable_file_is_a_permission_error(write: Write) -> None:
    path = write()
    path.chmod(0)
    if os.access(path, os.R_OK):
        pytest.skip("this user may read anything")
    with pytest.raises(PermissionError):
        telemetry.load_telemetry_sessions(path)


def test_a_broken_record_names_its_file(write: Write) -> None:
    path = write()
    path.write_text(json.dumps([v4(), v4(pid=-9)]))
    with pytest.raises(ValueError, match="pid must be >= -1") as caught:
        telemetry.load_telemetry_events(path)
    assert str(path) in str(caught.value)


def test_paths_of_every_kind(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write()
    monkeypatch.chdir(path.parent)
    expected = telemetry.load_telemetry_events(path)
    assert telemetry.load_telemetry_events(str(path)) == expected
    assert telemetry.load_telemetry_events(path.name) == expected
    odd = path.parent / os.fsdecode(b"odd-\xff.json")
    odd.write_bytes(path.read_bytes())
    (loaded,) = telemetry.load_telemetry_sessions(odd)
    assert loaded.events == expected and loaded.sources_loaded == [str(odd)]


def test_loading_lets_other_threads_run(write: Write) -> None:
    path = write(2000)
    results: list[int] = []

    def load() -> None:
        results.append(len(telemetry.load_telemetry_events(path)))

    threads = [threading.Thread(target=load) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [2000] * 8


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_loading_after_fork(write: Write) -> None:
    path = write()
    telemetry.load_telemetry_events(path)
    child = os.fork()
    if child == 0:
        os._exit(0 if len(telemetry.load_telemetry_events(path)) == 3 else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_session_ids_are_unique_and_opaque() -> None:
    ids = {session.new_session_id() for _ in range(1000)}
    assert len(ids) == 1000 and all(len(one) == 36 for one in ids)


def test_a_new_summary_describes_this_process() -> None:
    summary = session.create_session_summary(source="test")
    assert summary.pid == os.getpid() and summary.host and summary.status == "running"
    ended = session.finalize_session_summary(summary)
    assert ended.status == "completed" and (ended.ended_at_ns or 0) >= summary.started_at_ns
    with pytest.raises(dataclasses.FrozenInstanceError):
        summary.pid = 1  # type: ignore[misc]
    assert session.session_summary_from_dict(session.session_summary_to_dict(ended)) == ended
