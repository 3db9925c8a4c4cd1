"""The older name of Stormlog, kept for TensorFlow programs written for it: use `stormlog` in new code.

Holds nothing of its own: every name and every submodule is the one of `stormlog`. The stub files beside this
one say so to type checkers, which cannot follow the import hook.
"""

from stormlog import __all__, __author__, __version__  # noqa: F401
from stormlog._alias import install

__getattr__, __dir__ = install(__name__, "stormlog.tensorflow", "stormlog")
