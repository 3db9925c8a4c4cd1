from stormlog.derived_fields import *
