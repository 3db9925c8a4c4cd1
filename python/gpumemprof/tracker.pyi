from stormlog.tracker import *
