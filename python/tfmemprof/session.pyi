from stormlog.session import *
