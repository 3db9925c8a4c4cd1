from stormlog.distributed_analysis import *
