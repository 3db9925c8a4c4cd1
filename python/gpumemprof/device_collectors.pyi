from stormlog.device_collectors import *
