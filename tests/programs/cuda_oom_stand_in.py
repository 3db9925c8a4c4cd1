"""Raises what PyTorch raises when a GPU is full; a stand-in, since there is no GPU here."""

import time


class OutOfMemoryError(RuntimeError):
    pass


OutOfMemoryError.__module__ = "torch"
time.sleep(0.2)
raise OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has 79.10 GiB in all")
