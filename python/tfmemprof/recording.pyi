from stormlog.recording import *
