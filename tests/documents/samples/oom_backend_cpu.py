# CPU (for TensorFlow or CPU-only workloads)
from gpumemprof import CPUMemoryTracker

tracker = CPUMemoryTracker(sampling_interval=0.1)
