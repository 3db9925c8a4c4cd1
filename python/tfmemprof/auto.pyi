from stormlog.auto import *
