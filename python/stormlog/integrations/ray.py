"""Ray Train: `worker_recorder()` in the training function, `StormlogCallback` on the driver.

    def train():
        with worker_recorder() as recorder:
            for step in ...:
                recorder.begin_step(step)
                ...
                recorder.end_step()
                ray.train.report({"loss": loss, **recorder.metrics()})

    TorchTrainer(train, run_config=RunConfig(callbacks=[callback := StormlogCallback()])).fit()
    print(callback.report())

Each worker records itself, under its rank. The callback keeps the highest memory that each worker has
reported and which ran out of memory, in `ray-workers.json` of its directory; `callback.report()` prints it on
the driver, where both see that directory.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from stormlog._native import catalog, files
from stormlog.integrations._optional import framework, lazily
from stormlog.integrations._trainer import OnForecast, TrainerRecorder

PEAK = "stormlog/peak_bytes"
FILE = "ray-workers.json"
_LOGGER = logging.getLogger("stormlog.integrations")


def worker_recorder(*, on_forecast: OnForecast = None, **options: Any) -> TrainerRecorder:
    """What records this worker, with its rank and the size of its group."""
    context = framework("ray.train", "ray").get_context()
    # Ray keeps them from the environment; everything that records goes by it.
    names = {
        "RANK": context.get_world_rank(),
        "LOCAL_RANK": context.get_local_rank(),
        "WORLD_SIZE": context.get_world_size(),
    }
    for name, value in names.items():
        os.environ.setdefault(name, str(value))
    return TrainerRecorder(on_forecast=on_forecast, **options)


class WorkerPeaks:
    """What the workers have reported: the highest memory of each, and which ran out of it."""

    def __init__(self) -> None:
        self.peaks: dict[int, int] = {}
        self.out_of_memory: dict[int, str] = {}

    def reported(self, metrics: Sequence[Mapping[str, Any]]) -> None:
        """All workers have reported; the first is rank 0."""
        for rank, values in enumerate(metrics):
            peak = values.get(PEAK)
            if isinstance(peak, int | float):
                self.peaks[rank] = max(self.peaks.get(rank, 0), int(peak))

    def failed(self, errors: Mapping[int, BaseException]) -> None:
        """Workers have raised."""
        from stormlog.oom_flight_recorder import classified

        for rank, error in errors.items():
            found = classified(getattr(error, "cause", None) or error)
            if found.is_oom and found.reason is not None:
                self.out_of_memory[rank] = found.reason

    def text(self) -> str:
        """As JSON."""
        ranks = sorted(self.peaks.keys() | self.out_of_memory.keys())
        rows = [
            {"rank": rank, "peak_bytes": self.peaks.get(rank), "out_of_memory": self.out_of_memory.get(rank)}
            for rank in ranks
        ]
        return json.dumps({"workers": rows})

    @classmethod
    def read(cls, file: Path) -> WorkerPeaks:
        """What a controller has written; nothing where it has not."""
        found = cls()
        try:
            rows = json.loads(file.read_text(encoding="utf-8"))["workers"]
        except FileNotFoundError:
            return found
        for row in rows:
            rank = int(row["rank"])
            if row["peak_bytes"] is not None:
                found.peaks[rank] = int(row["peak_bytes"])
            if row["out_of_memory"] is not None:
                found.out_of_memory[rank] = str(row["out_of_memory"])
        return found

    def report(self) -> str:
        """One line for each worker, the one with the most memory first."""
        ranks = sorted(self.peaks.keys() | self.out_of_memory.keys(), key=lambda r: -self.peaks.get(r, 0))
        lines = []
        for rank in ranks:
            peak = self.peaks.get(rank)
            words = "unknown" if peak is None else f"{peak / (1 << 20):.2f} MiB"
            end = f", out of memory: {self.out_of_memory[rank]}" if rank in self.out_of_memory else ""
            lines.append(f"rank {rank}: peak {words}{end}")
        return "\n".join(lines)


def _callback() -> Any:
    base: Any = getattr(framework("ray.train", "ray"), "UserCallback", None)
    if base is None:
        raise ImportError(
            "This Ray has no ray.train.UserCallback. Install a newer one: `pip install -U ray`."
        )

    class StormlogCallback(base):  # type: ignore[misc]
        """Runs in Ray's controller, a process of its own: what the workers report is kept in a file."""

        def __init__(self, directory: str | os.PathLike[str] = catalog.RUNS_DIRECTORY) -> None:
            self.file = Path(directory).absolute() / FILE
            self._workers = WorkerPeaks()

        def after_report(self, run_context: Any, metrics: list[dict[str, Any]], checkpoint: Any) -> None:
            """Keep the highest memory of each worker."""
            self._workers.reported(metrics)
            self._write()

        def after_exception(self, run_context: Any, worker_exceptions: dict[int, Exception]) -> None:
            """Keep which workers ran out of memory."""
            self._workers.failed(worker_exceptions)
            self._write()

        def report(self) -> str:
            """One line for each worker, the one with the most memory first; for the driver."""
            return WorkerPeaks.read(self.file).report()

        def _write(self) -> None:
            try:
                files.create_directory(self.file.parent)
                files.replace_file(self.file, self._workers.text().encode())
            except OSError as error:
                _LOGGER.warning("%s could not be written: %s", self.file, error)

    return StormlogCallback


__getattr__ = lazily(globals(), {"StormlogCallback": _callback})
