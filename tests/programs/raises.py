"""Dies of an ordinary exception in the main thread."""

import time

time.sleep(0.3)
raise RuntimeError("the loss is nan")
