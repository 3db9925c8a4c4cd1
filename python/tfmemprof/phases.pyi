from stormlog.phases import *
