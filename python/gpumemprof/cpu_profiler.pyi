from stormlog.cpu_profiler import *
