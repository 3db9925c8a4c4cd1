from stormlog.analyzer import *
