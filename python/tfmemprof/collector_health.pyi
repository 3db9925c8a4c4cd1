from stormlog.collector_health import *
