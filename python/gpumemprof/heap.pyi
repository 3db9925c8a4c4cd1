from stormlog.heap import *
