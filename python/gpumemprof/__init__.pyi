from stormlog import *
from stormlog import __author__ as __author__
from stormlog import __version__ as __version__
