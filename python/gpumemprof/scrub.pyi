from stormlog.scrub import *
