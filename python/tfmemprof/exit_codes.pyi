from stormlog.exit_codes import *
