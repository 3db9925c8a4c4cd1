from stormlog.tensorflow.analyzer import *
