from stormlog.visualizer import *
