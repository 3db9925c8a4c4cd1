from stormlog.telemetry_rollups import *
