"""The values of 0.4.3's tables: devices of a framework, a timeline summed up, and the machine as Markdown.

What only described 0.4.3's own tabs is not here.
"""

from __future__ import annotations

from typing import Any

from stormlog.formatting import format_bytes

__all__ = [
    "build_legacy_timeline_rows",
    "build_pytorch_stats_rows",
    "build_system_markdown",
    "build_tensorflow_stats_rows",
]

_MIB = 1024**2
_GIB = 1024**3


def build_system_markdown(
    *,
    system_info: dict[str, Any],
    gpu_info: dict[str, Any],
    tf_system_info: dict[str, Any],
    tf_gpu_info: dict[str, Any],
) -> str:
    """Platform, versions, GPU memory and the first commands to try."""
    python = str(system_info.get("python_version", "Unknown")).split()[0]
    lines = [
        "### System",
        "",
        f"- **Platform**: {system_info.get('platform', 'Unknown')}",
        f"- **Python**: {python}",
        f"- **TensorFlow (Python)**: {tf_system_info.get('tensorflow_version', 'N/A')}",
        f"- **CUDA Available**: {system_info.get('cuda_available', False)}",
    ]
    if system_info.get("cuda_available"):
        lines += [
            f"- **CUDA Version**: {system_info.get('cuda_version', 'Unknown')}",
            f"- **GPU Count**: {system_info.get('cuda_device_count', 0)}",
        ]
    lines.append("")
    if gpu_info:
        lines += [
            "### GPU",
            f"- **Device Name**: {gpu_info.get('device_name', 'Unknown')}",
            f"- **Total Memory**: {gpu_info.get('total_memory', 0) / _GIB:.2f} GB",
            f"- **Allocated**: {gpu_info.get('allocated_memory', 0) / _GIB:.2f} GB",
            f"- **Reserved**: {gpu_info.get('reserved_memory', 0) / _GIB:.2f} GB",
        ]
    else:
        lines.append(
            "> GPU metrics are unavailable on this system. You can still run the CLI and CPU guides."
        )
    lines.append("")
    if tf_gpu_info and tf_gpu_info.get("devices"):
        device = tf_gpu_info["devices"][0]
        lines += [
            "",
            "### TensorFlow GPU",
            f"- **TF Device Name**: {device.get('name', 'Unknown')}",
            f"- **Current Memory**: {device.get('current_memory_mb', 0):.2f} MB",
            f"- **Peak Memory**: {device.get('peak_memory_mb', 0):.2f} MB",
        ]
    lines += [
        "",
        "### First commands",
        "",
        "- `gpumemprof info`",
        "- `gpumemprof track --duration 60 --output tracking.json`",
        "- `gpumemprof diagnose --duration 0 --output artifacts/diag`",
        "",
        "Docs: https://stormlog.readthedocs.io",
    ]
    return "\n".join(lines)


def build_pytorch_stats_rows(info: dict[str, Any]) -> list[dict[str, Any]]:
    """One row for the device of `get_gpu_info`, in MiB."""
    if not info:
        return []
    allocated = info.get("allocated_memory", 0)
    return [
        {
            "device": info.get("device_name", "gpu0"),
            "current": allocated / _MIB,
            "peak": info.get("max_memory_allocated", allocated) / _MIB,
            "reserved": info.get("reserved_memory", 0) / _MIB,
        }
    ]


def build_tensorflow_stats_rows(gpu_info: dict[str, Any]) -> list[dict[str, Any]]:
    """One row for each device of `stormlog.tensorflow.utils.get_gpu_info`, in MiB."""
    return [
        {
            "device": device.get("name", "tf-gpu"),
            "current": device.get("current_memory_mb", 0),
            "peak": device.get("peak_memory_mb", 0),
            "reserved": gpu_info.get("total_memory", 0),
        }
        for device in (gpu_info.get("devices", []) if gpu_info else [])
    ]


def build_legacy_timeline_rows(timeline: dict[str, Any]) -> list[tuple[str, str]]:
    """Samples, duration, highest and latest values of a tracker's timeline."""
    timestamps = timeline.get("timestamps") or []
    allocated = timeline.get("allocated") or []
    is_empty = not allocated or not timestamps
    span = 0.0 if is_empty else max(0.0, timestamps[-1] - timestamps[0])
    # A timeline without a reserved series has always shown 0 B.
    of_allocated = ("-", "-") if is_empty else _most_and_last(allocated, "-")
    of_reserved = ("-", "-") if is_empty else _most_and_last(timeline.get("reserved") or [], "0 B")
    return [
        ("Samples", "0" if is_empty else str(len(allocated))),
        ("Duration (s)", "-" if is_empty else f"{span:.1f}"),
        ("Allocated Max", of_allocated[0]),
        ("Reserved Max", of_reserved[0]),
        ("Allocated Latest", of_allocated[1]),
        ("Reserved Latest", of_reserved[1]),
    ]


def _most_and_last(values: list[Any], empty: str) -> tuple[str, str]:
    if not values:
        return empty, empty
    known = [value for value in values if value is not None]
    most = format_bytes(int(max(known))) if known else "-"
    return most, "-" if values[-1] is None else format_bytes(int(values[-1]))
