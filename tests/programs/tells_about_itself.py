"""Prints what a program can see of how it was started: descriptors, signals, limits, group, directory."""

import json
import os
import resource
import signal
from pathlib import Path

status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
# Signals 32 and 33 are the C library's: ignored after posix_spawn, handled before they are needed.
own = (1 << 31) | (1 << 32)
signals = {key: hex(int(status[key], 16) & ~own) for key in ("SigBlk", "SigIgn", "SigCgt")}
# The listing itself has one that is gone afterwards.
listed = list(Path("/proc/self/fd").iterdir())
descriptors = sorted(int(entry.name) for entry in listed if entry.exists())
print(
    json.dumps(
        {
            "descriptors": descriptors,
            "signals": signals,
            "threads": status["Threads"].strip(),
            "limits": {
                name: resource.getrlimit(getattr(resource, name))
                for name in dir(resource)
                if name.startswith("RLIMIT_")
            },
            "handler": repr(signal.getsignal(signal.SIGINT)),
            "nice": os.nice(0),
            "group": os.getpgid(0) == os.getpgid(os.getppid()),
            "session": os.getsid(0),
            "directory": str(Path.cwd()),
            "umask": os.umask(0),
            "environment": dict(os.environ),
        }
    )
)
