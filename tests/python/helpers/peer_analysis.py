"""The same events and calls analysed by whichever stormlog this interpreter has; prints the results as JSON.

`python peer_analysis.py CASES`: run by test_analysis.py under 0.4.3 and under ours. CASES is the file of
golden recordings; profiled calls are drawn from a fixed seed.
"""

from __future__ import annotations

import dataclasses
import inspect
import json
import random
import sys
import types
from pathlib import Path
from typing import Any

import cuda_stand_in

sys.modules["torch"] = cuda_stand_in.make()

from stormlog.analyzer import MemoryAnalyzer, MemoryPattern, PerformanceInsight  # noqa: E402
from stormlog.collective_attribution import (  # noqa: E402
    CollectiveAttributionConfig,
    CollectiveAttributionResult,
    attribute_collective_memory,
    resolve_collective_attribution_config,
)
from stormlog.distributed_analysis import (  # noqa: E402
    analyze_cross_rank_events,
    merge_cross_rank_timelines,
    summarize_cross_rank_analysis,
)
from stormlog.gap_analysis import GapFinding, analyze_hidden_memory_gaps  # noqa: E402
from stormlog.phases import PhaseReplayIndex  # noqa: E402
from stormlog.profiler import MemorySnapshot, ProfileResult  # noqa: E402
from stormlog.telemetry import telemetry_event_from_record  # noqa: E402
from stormlog.tensorflow.analyzer import MemoryAnalyzer as TensorFlowAnalyzer  # noqa: E402
from stormlog.timeline_markers import (  # noqa: E402
    TimelineMarker,
    derive_timeline_markers,
    timeline_marker_to_dict,
)

MIB = 1 << 20


def calls(seed: int) -> list[ProfileResult]:
    """Profiled calls of a few functions: leaking, fragmenting, spiky or calm, by the seed."""
    rng = random.Random(seed)
    held, clock, results = 10 * MIB, 1000.0, []
    for index in range(rng.choice([2, 4, 12, 40])):
        name = rng.choice(["forward", "backward", "step", "load"][: 1 + seed % 4])
        size = rng.randint(1, 40) * MIB * (20 if rng.random() < 0.1 else 1)
        kept = size if seed % 3 == 0 else rng.choice([0, 0, size, -min(held, size)])
        seconds = rng.random() * (1 + 9 * (rng.random() < 0.1)) if seed % 5 else size / 1e9
        reserved = held + size + rng.randint(0, 200) * MIB
        inactive = int(reserved * rng.random() * (seed % 4) / 3)

        def at(allocated: int, when: float, reserved: int = reserved, inactive: int = inactive) -> Any:
            return MemorySnapshot(when, allocated, reserved, 0, 0, 0, inactive, 0)

        results.append(
            ProfileResult(
                name,
                seconds,
                at(held, clock),
                at(held + kept, clock + seconds),
                at(held + size // (1 + index % 4), clock + seconds / 2),
                size,
                size - kept,
                0,
                0,
            )
        )
        held += kept
        clock += seconds + 0.001
    return results


def tracked(seed: int) -> Any:
    """Results of a TensorFlow tracker and profiler in one object."""
    rng = random.Random(seed)
    count = rng.choice([5, 12, 30, 80])
    shape = seed % 4
    usage = [
        100.0 + (i * 3 if shape == 1 else 0) + (200 if shape == 2 and i == 6 else 0) + rng.random()
        if shape < 3
        else 100.0 + 50 * (i % 10)
        for i in range(count)
    ]
    snapshots = [
        types.SimpleNamespace(gpu_memory_mb=used, gpu_memory_reserved_mb=used * (1 + rng.random() * seed / 4))
        for used in usage
    ]
    functions = {
        f"f{i}": {
            "calls": rng.choice([0, 3, 200]),
            "total_memory_used": rng.randint(0, 9000),
            "total_duration": rng.random() * 100,
            "peak_memory": rng.randint(0, 4000),
        }
        for i in range(seed % 5)
    }
    return types.SimpleNamespace(
        memory_usage=usage,
        timestamps=list(range(count)),
        memory_growth_rate=rng.choice([0, 150, 250]),
        peak_memory_mb=rng.choice([100, 5000, 9000]),
        average_memory_mb=100,
        snapshots=snapshots,
        function_profiles=functions,
    )


def of_events(events: list[Any]) -> dict[str, Any]:
    phases = PhaseReplayIndex.from_events(events)
    merged, first = analyze_cross_rank_events(events, phase_resolver=phases)
    return {
        "report": MemoryAnalyzer().generate_optimization_report([], events),
        "without_phases": [
            dataclasses.asdict(found)
            for found in analyze_hidden_memory_gaps(
                events, MemoryAnalyzer().thresholds, lambda size: f"<{size}>", {}, None
            )
        ],
        "high": [
            dataclasses.asdict(found)
            for found in attribute_collective_memory(
                events, preset="high", overrides={"min_confidence": 0.2}, phase_resolver=phases
            )
        ],
        "merged": dataclasses.asdict(merged),
        "merged_again": dataclasses.asdict(merge_cross_rank_timelines(events)) == dataclasses.asdict(merged),
        "first": dataclasses.asdict(first),
        "ranks": summarize_cross_rank_analysis(events, phase_resolver=phases),
        "markers": [timeline_marker_to_dict(marker) for marker in derive_timeline_markers(events)],
        "tensorflow": TensorFlowAnalyzer().score_optimization(tracked(1), events),
    }


def of_calls(seed: int) -> dict[str, Any]:
    analyzer = MemoryAnalyzer(types.SimpleNamespace(results=calls(seed)))  # type: ignore[arg-type]
    if seed % 2:
        analyzer.thresholds["min_calls_for_analysis"] = 2
    return analyzer.generate_optimization_report()


def of_tensorflow(seed: int) -> dict[str, Any]:
    analyzer, result = TensorFlowAnalyzer(), tracked(seed)
    return {
        "leaks": analyzer.detect_memory_leaks(result),
        "fragmentation": analyzer.analyze_fragmentation(result),
        "patterns": analyzer.detect_patterns(result),
        "efficiency": analyzer.analyze_efficiency(result),
        "functions": analyzer.correlate_with_performance(result),
        "score": analyzer.score_optimization(result),
        "nothing": analyzer.score_optimization(object()),
    }


def parameters(function: Any) -> list[list[str]]:
    return [
        [name, repr(parameter.default) if parameter.default is not parameter.empty else "-"]
        for name, parameter in inspect.signature(function).parameters.items()
    ]


def refusals() -> list[str]:
    said = []
    for preset, overrides in (
        ("loud", None),
        ("low", {"nonsense": 1, "another": 2}),
        ("low", {"min_samples_per_rank": 2}),
        ("low", {"min_gap_bytes": -1}),
        ("low", {"min_confidence": 2}),
        ("low", {"robust_zscore_threshold": 0}),
    ):
        try:
            resolve_collective_attribution_config(preset, overrides)
        except ValueError as error:
            said.append(str(error))
    return said


def main(path: Path) -> dict[str, Any]:
    golden = json.loads(path.read_text())
    shapes = [
        MemoryAnalyzer,
        TensorFlowAnalyzer,
        MemoryPattern,
        PerformanceInsight,
        GapFinding,
        CollectiveAttributionConfig,
        CollectiveAttributionResult,
        TimelineMarker,
    ]
    return {
        "events": {
            name: of_events([telemetry_event_from_record({**golden["base"], **row}) for row in case["rows"]])
            for name, case in golden["cases"].items()
        },
        "no_events": of_events([]),
        "calls": [of_calls(seed) for seed in range(40)],
        "tensorflow": [of_tensorflow(seed) for seed in range(16)],
        "refusals": refusals(),
        "presets": [
            dataclasses.asdict(resolve_collective_attribution_config(name)) for name in ("low", " High ", "")
        ],
        "signatures": {shape.__module__ + "." + shape.__name__: parameters(shape) for shape in shapes},
        "thresholds": [MemoryAnalyzer().thresholds, TensorFlowAnalyzer().thresholds],
    }


if __name__ == "__main__":
    json.dump(main(Path(sys.argv[1])), sys.stdout, default=str)
