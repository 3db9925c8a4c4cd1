"""`import torch` gives the stand-in of tests/python: put this folder on PYTHONPATH."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2] / "python"))

import auto_stand_in

sys.modules["torch"] = auto_stand_in.make()
