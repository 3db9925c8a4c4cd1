from stormlog.errors import *
