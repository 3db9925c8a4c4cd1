from stormlog.torch_snapshot import *
