"""`import torch` gives the stand-in of tests/python/helpers: put this folder on PYTHONPATH."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2] / "python" / "helpers"))

import auto_stand_in

sys.modules["torch"] = auto_stand_in.make()
