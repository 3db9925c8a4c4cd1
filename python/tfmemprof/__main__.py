"""`python -m tfmemprof`."""

from stormlog._entry import tfmemprof

if __name__ == "__main__":
    tfmemprof()
