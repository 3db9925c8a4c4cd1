from stormlog.issues import *
