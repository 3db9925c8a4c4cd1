from stormlog.cuda_driver import *
