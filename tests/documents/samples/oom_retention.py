# Configure retention
tracker = MemoryTracker(
    enable_oom_flight_recorder=True,
    oom_max_dumps=5,  # Keep at most 5 dumps
    oom_max_total_mb=256,  # Use at most 256MB total
)
