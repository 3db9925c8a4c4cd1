from stormlog.cuda_native_debug import *
