"""Imports what programs usually import; the dictionaries beside it hold what captures of it have in common."""

import importlib

NAMES = """
abc argparse array ast asyncio atexit base64 bisect bz2 calendar cmath codecs collections concurrent.futures
configparser contextlib contextvars copy csv ctypes dataclasses datetime decimal difflib dis email.message
enum errno fnmatch fractions functools gc getopt getpass gettext glob gzip hashlib heapq hmac html
html.parser http.client http.server importlib.metadata importlib.resources inspect io ipaddress itertools
json keyword linecache locale logging logging.handlers lzma math mimetypes multiprocessing numbers operator
os pathlib pickle pkgutil platform plistlib pprint queue random re select selectors shlex shutil signal
socket socketserver sqlite3 ssl stat statistics string struct subprocess sys sysconfig tarfile tempfile
textwrap threading time timeit token tokenize traceback tracemalloc types typing unicodedata unittest
unittest.mock urllib.parse urllib.request uuid warnings weakref xml.etree.ElementTree zipfile zlib zoneinfo
"""

for name in NAMES.split():
    importlib.import_module(name)
