"""`python -m gpumemprof`."""

from stormlog._entry import gpumemprof

if __name__ == "__main__":
    gpumemprof()
