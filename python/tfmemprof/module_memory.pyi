from stormlog.module_memory import *
