from stormlog.telemetry_classification import *
