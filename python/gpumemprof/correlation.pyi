from stormlog.correlation import *
