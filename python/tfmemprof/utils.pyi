from stormlog.utils import *
