from stormlog.tensorflow.tracker import *
