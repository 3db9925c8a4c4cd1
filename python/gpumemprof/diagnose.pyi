from stormlog.diagnose import *
