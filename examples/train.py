"""Keeps every image that it decodes, and is killed where less than 400 MB is allowed; imports no Stormlog.

Usage: stormlog run examples/train.py [EPOCHS]
"""

from __future__ import annotations

import sys
import time

IMAGES = 120
SIZE = 1 << 20


class Cache:
    """Decoded images by number."""

    def __init__(self) -> None:
        self.images: dict[tuple[int, int], bytes] = {}

    def put(self, epoch: int, number: int, image: bytes) -> None:
        # The epoch is part of the key, so that no image is ever found again.
        self.images[epoch, number] = image


def decode(number: int) -> bytes:
    return number.to_bytes(2, "big") * (SIZE // 2)


def build() -> list[bytearray]:
    layers = []
    for _ in range(24):
        layers.append(bytearray(b"\1") * SIZE)
    return layers


def main() -> None:
    model = build()
    cache = Cache()
    for epoch in range(int(sys.argv[1]) if len(sys.argv) > 1 else 3):
        for number in range(IMAGES):
            image = decode(number)
            cache.put(epoch, number, image)
            time.sleep(0.05)
        print(f"epoch {epoch}: {len(model)} layers, {IMAGES} images", flush=True)


if __name__ == "__main__":
    main()
