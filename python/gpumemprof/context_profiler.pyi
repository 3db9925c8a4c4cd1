from stormlog.context_profiler import *
