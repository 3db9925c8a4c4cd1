"""A small inference server: weights, and a paged KV cache that requests write into. `DEVICE` is cpu or cuda.

Prints its port, answers POST /generate?tokens=N with the bytes of its parts, and runs until it is ended.
"""

import json
import os
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import torch

DEVICE = os.environ.get("DEVICE", "cpu")
SCALE = int(os.environ.get("SCALE", "1"))
HIDDEN, LAYERS, PAGES, PAGE = 256 * SCALE, 4, 64, 16


class PagedCache:
    """Pages of keys and values, one tensor of each for a layer."""

    def __init__(self) -> None:
        shape = (PAGES, PAGE, HIDDEN)
        self.key_cache = [torch.zeros(shape, device=DEVICE) for _ in range(LAYERS)]
        self.value_cache = [torch.zeros(shape, device=DEVICE) for _ in range(LAYERS)]
        self.used = 0

    def write(self, layer: int, keys: torch.Tensor, values: torch.Tensor) -> None:
        page, slot = divmod(self.used % (PAGES * PAGE), PAGE)
        self.key_cache[layer][page, slot] = keys[0]
        self.value_cache[layer][page, slot] = values[0]


class Layer(torch.nn.Module):
    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number
        self.project = torch.nn.Linear(HIDDEN, 3 * HIDDEN)

    def forward(self, hidden: torch.Tensor, cache: PagedCache) -> torch.Tensor:
        query, keys, values = self.project(hidden).chunk(3, dim=-1)
        cache.write(self.number, keys, values)
        scores = torch.softmax(query @ cache.key_cache[self.number].view(-1, HIDDEN).T, dim=-1)
        return hidden + scores @ cache.value_cache[self.number].view(-1, HIDDEN)


def load() -> torch.nn.ModuleList:
    return torch.nn.ModuleList(Layer(number) for number in range(LAYERS)).to(DEVICE)


class Engine:
    def __init__(self) -> None:
        self.layers = load()
        self.cache = PagedCache()

    @torch.inference_mode()
    def generate(self, tokens: int) -> None:
        hidden = torch.ones(1, HIDDEN, device=DEVICE)
        for _ in range(tokens):
            for layer in self.layers:
                hidden = layer(hidden, self.cache)
            self.cache.used += 1

    def sizes(self) -> dict[str, int]:
        caches = [*self.cache.key_cache, *self.cache.value_cache]
        return {
            "weights": sum(one.nbytes for one in self.layers.parameters()),
            "kv_cache": sum(one.nbytes for one in caches),
        }


def main() -> None:
    engine = Engine()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            engine.generate(int(self.path.rpartition("=")[2]))
            self.send_response(200)
            self.end_headers()
            self.wfile.write(json.dumps(engine.sizes()).encode())

        def log_message(self, format: str, *arguments: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    print(json.dumps({"port": server.server_port, "pid": os.getpid(), **engine.sizes()}), flush=True)
    server.serve_forever()


if __name__ == "__main__":
    sys.exit(main())
