from stormlog.report import *
