"""A handler that keeps log records to show them later. Memory: anonymous."""

import logging

from clock import steps


class Keeper(logging.Handler):
    records: list[logging.LogRecord] = []  # noqa: RUF012

    def emit(self, record):
        self.records.append(record)


log = logging.getLogger("service")
log.propagate = False
log.setLevel(logging.INFO)
log.addHandler(Keeper())


def serve(number):
    for part in range(60):
        log.info("request %s part %s: %s", number, part, "payload " * 40 + str(part))  # leak


for step in steps(0.1):
    serve(step)
