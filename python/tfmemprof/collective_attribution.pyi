from stormlog.collective_attribution import *
