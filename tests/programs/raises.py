"""Dies of an ordinary exception in the main thread, after the seconds given."""

import sys
import time

time.sleep(float(sys.argv[1]) if len(sys.argv) > 1 else 0.3)
raise RuntimeError("the loss is nan")
