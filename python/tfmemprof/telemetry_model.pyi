from stormlog.telemetry_model import *
