from stormlog.attributed_viz import *
