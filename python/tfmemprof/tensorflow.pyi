from stormlog.tensorflow import *
