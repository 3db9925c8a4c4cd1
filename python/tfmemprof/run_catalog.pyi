from stormlog.run_catalog import *
