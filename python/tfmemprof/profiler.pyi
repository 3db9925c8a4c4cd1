from stormlog.tensorflow.profiler import *
