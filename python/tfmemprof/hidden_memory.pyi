from stormlog.hidden_memory import *
