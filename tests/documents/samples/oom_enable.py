from gpumemprof.tracker import MemoryTracker

tracker = MemoryTracker(
    device=0,
    sampling_interval=0.1,
    enable_oom_flight_recorder=True,
    oom_dump_dir="oom_dumps",
    oom_buffer_size=10_000,
    oom_max_dumps=3,
    oom_max_total_mb=128,
)
