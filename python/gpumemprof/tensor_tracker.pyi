from stormlog.tensor_tracker import *
