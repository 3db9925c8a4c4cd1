"""Three loader processes, each of which keeps every record it decoded. Memory: anonymous."""

import multiprocessing
import queue

import numpy
from clock import steps


class Dataset:
    def __init__(self):
        self.decoded = {}

    def __getitem__(self, index):
        if index not in self.decoded:
            self.decoded[index] = numpy.sqrt(numpy.arange(index, index + 30_000))  # leak
        return self.decoded[index]


def serve(dataset, wanted, ready):
    while (index := wanted.get()) is not None:
        ready.put(float(dataset[index].sum()))


if __name__ == "__main__":
    wanted, ready = multiprocessing.Queue(), multiprocessing.Queue()
    dataset = Dataset()
    workers = [multiprocessing.Process(target=serve, args=(dataset, wanted, ready)) for _ in range(3)]
    for worker in workers:
        worker.start()
    total = 0.0
    for step in steps(0.05):
        wanted.put(step)
        try:  # noqa: SIM105
            total += ready.get(timeout=0.5)
        except queue.Empty:
            pass
    for _ in workers:
        wanted.put(None)
    for worker in workers:
        worker.join()
