"""A Celery application with a task that needs more memory than there is; its queue is a directory."""

from __future__ import annotations

import os

from celery import Celery

queue = os.environ.get("QUEUE", "queue")
app = Celery("tasks", broker="filesystem://")
app.conf.broker_transport_options = {"data_folder_in": queue, "data_folder_out": queue}


@app.task
def hoard() -> None:
    """Keeps memory until the kernel ends the worker."""
    kept = []
    while True:
        kept.append(bytearray(1 << 20))
