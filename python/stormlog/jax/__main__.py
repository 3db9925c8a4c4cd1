"""`python -m stormlog.jax`: the command `jaxmemprof`."""

from stormlog._entry import jaxmemprof

if __name__ == "__main__":
    jaxmemprof()
