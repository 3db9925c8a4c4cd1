# CUDA/ROCm
tracker = MemoryTracker(device=0, enable_oom_flight_recorder=True)
