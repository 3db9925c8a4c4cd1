"""The IPython extension: `%load_ext stormlog`. Private."""
