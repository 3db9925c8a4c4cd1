from stormlog.telemetry import *
