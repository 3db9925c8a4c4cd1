import json
from pathlib import Path


def analyze_oom_dump(dump_path):
    dump_dir = Path(dump_path)
    # Load manifest
    with open(dump_dir / "manifest.json") as f:
        manifest = json.load(f)
    # Load events
    with open(dump_dir / "events.json") as f:
        events = json.load(f)
    # Load metadata
    with open(dump_dir / "metadata.json") as f:
        metadata = json.load(f)
    print(f"OOM occurred in: {metadata['context']}")
    print(f"Exception: {metadata['exception_type']}")
    print(f"Events captured: {len(events)}")
    # Analyze memory growth
    if events:
        first_allocated = events[0]["memory_allocated"]
        last_allocated = events[-1]["memory_allocated"]
        growth_mb = (last_allocated - first_allocated) / (1024**2)
        print(f"Memory growth: {growth_mb:.2f} MB")
    return manifest, events, metadata


# Analyze the last dump
if tracker.last_oom_dump_path:
    analyze_oom_dump(tracker.last_oom_dump_path)
