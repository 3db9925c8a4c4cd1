from stormlog.tensorflow.utils import *
