from stormlog.system_info import *
