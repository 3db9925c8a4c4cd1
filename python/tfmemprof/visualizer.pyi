from stormlog.tensorflow.visualizer import *
