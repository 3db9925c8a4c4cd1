"""`python -m stormlog`."""

from stormlog._entry import stormlog

if __name__ == "__main__":
    stormlog()
