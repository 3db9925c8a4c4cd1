from stormlog.oom_flight_recorder import *
