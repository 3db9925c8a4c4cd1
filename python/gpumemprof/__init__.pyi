from stormlog import *
from stormlog import MemoryError as MemoryError  # mypy leaves names of builtins out of a star import
from stormlog import __all__ as __all__
from stormlog import __author__ as __author__
from stormlog import __version__ as __version__
