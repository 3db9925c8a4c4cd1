"""abort(), as a failed assertion in a native library does."""

import os
import time

time.sleep(0.3)
os.abort()
