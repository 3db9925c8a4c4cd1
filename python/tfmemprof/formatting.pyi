from stormlog.formatting import *
