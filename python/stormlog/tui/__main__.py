"""`python -m stormlog.tui`: becomes the native command, so that the terminal's signals reach it alone."""

import sys

from stormlog._entry import stormlog

if __name__ == "__main__":
    if sys.argv[1:2] != ["query"]:
        sys.argv.insert(1, "tui")
    stormlog()
