from stormlog.tensorflow.diagnose import *
