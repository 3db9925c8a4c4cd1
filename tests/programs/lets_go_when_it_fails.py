"""Holds blocks of 8 MiB until one gets no memory; the exception that ends it lets go of all of them."""


def block():
    return bytearray(8 << 20)


def hold():
    blocks = []
    while True:
        blocks.append(block())


hold()
