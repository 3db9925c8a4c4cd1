from stormlog.tensorflow.context_profiler import *
