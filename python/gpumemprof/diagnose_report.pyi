from stormlog.diagnose_report import *
