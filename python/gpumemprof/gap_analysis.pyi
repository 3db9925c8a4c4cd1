from stormlog.gap_analysis import *
