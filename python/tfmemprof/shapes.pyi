from stormlog.shapes import *
