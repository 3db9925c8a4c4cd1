# Figures: the submodule `stormlog._native.plot`.

__all__ = [
    "draw_figure",
]

# A figure as JSON (see `_figure.py`), drawn as `png`, `svg` or `html`; the scale is for PNG.
def draw_figure(figure: str, form: str, scale: float) -> bytes: ...
