"""An exception ends a thread; the program continues and exits with 3."""

import sys
import threading


def work():
    raise ValueError("bad batch")


thread = threading.Thread(target=work, name="loader")
thread.start()
thread.join()
sys.exit(3)
