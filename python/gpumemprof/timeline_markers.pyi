from stormlog.timeline_markers import *
