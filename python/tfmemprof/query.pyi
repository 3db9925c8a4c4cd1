from stormlog.query import *
