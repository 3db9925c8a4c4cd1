"""The stand-in for PyTorch's device allocator, as test programs use it.

Its libraries are in the directory `STAND_IN` and are loaded as PyTorch's are: local.
"""

import ctypes
import os

PLACE = os.environ["STAND_IN"]
TAGS = 8
NAMES = ["allocations", "frees", "bytes", "allocated", "peak", "reserved", "failures", "checksum"]


class Counts(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint64) for name in NAMES] + [("live", ctypes.c_uint64 * TAGS)]


class Sums(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint64) for name in ("reports", "failures", "checksum", "cpu_reports")]


def load():
    global cuda, c10
    cuda = ctypes.CDLL(PLACE + "/libc10_cuda.so")
    c10 = ctypes.CDLL(PLACE + "/libc10.so")
    number = ctypes.c_uint64
    cuda.stand_in_allocate.restype = number
    cuda.stand_in_allocate.argtypes = [ctypes.c_int, number, ctypes.c_int]
    cuda.stand_in_free.argtypes = [ctypes.c_int, number, number, ctypes.c_int]
    cuda.stand_in_capacity.argtypes = [number]
    cuda.stand_in_engine.argtypes = [ctypes.c_int, number, ctypes.c_int, ctypes.c_int]
    cuda.stand_in_pairs.argtypes = [ctypes.c_int, number, number]
    cuda.stand_in_cpu_report.argtypes = [number, ctypes.c_int64]
    for name in ("stand_in_tensor", "stand_in_aligned"):
        function = getattr(c10, name)
        function.restype, function.argtypes = ctypes.c_void_p, [number]
    return cuda, c10, cuda.stand_in_allocate, cuda.stand_in_free


def counts(device=0):
    result = Counts()
    cuda.stand_in_counts(device, ctypes.byref(result))
    return {name: getattr(result, name) for name in NAMES} | {"live": list(result.live)}


def tell(devices=1):
    """Prints what was counted, and that everything was passed on as it was."""
    every, sums = [counts(device) for device in range(devices)], Sums()
    c10.stand_in_sums(ctypes.byref(sums))
    assert sums.reports == sum(one["allocations"] + one["frees"] for one in every), (
        "each report is passed on once"
    )
    assert sums.failures == sum(one["failures"] for one in every), "each failure is passed on once"
    assert sums.checksum == sum(one["checksum"] for one in every) % 2**64, (
        "arguments are passed on as they were"
    )
    for one in every:
        print(*(one[name] for name in NAMES), *one["live"], flush=True)


def hook(late):
    """The recorder's library: preloaded, or loaded here."""
    library = ctypes.CDLL(late) if late else ctypes.CDLL(None)
    python = ctypes.PyDLL(late) if late else ctypes.PyDLL(None)
    library.stormlog_gpu_report.argtypes = (
        [ctypes.c_uint64, ctypes.c_int64, ctypes.c_uint64, ctypes.c_uint64]
        + [ctypes.c_uint8] * 3
        + [ctypes.c_uint64]
    )
    library.stormlog_gpu_report.restype = None
    python.stormlog_gpu_leave_backward.restype = None
    library.enter, library.leave = python.stormlog_gpu_enter_backward, python.stormlog_gpu_leave_backward
    return library
