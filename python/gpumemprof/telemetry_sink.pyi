from stormlog.telemetry_sink import *
