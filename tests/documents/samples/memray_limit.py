import os
import resource
import secrets
import numpy as np


def limit_memory(max_bytes: int) -> None:
    """Set a virtual memory limit to trigger a Python MemoryError before OS SIGKILL."""
    resource.setrlimit(resource.RLIMIT_AS, (max_bytes, max_bytes))
