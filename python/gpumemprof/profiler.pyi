from stormlog.profiler import *
