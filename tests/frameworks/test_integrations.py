"""Callbacks of trainers with the real packages: phases, steps, peaks, bundles and stops."""

from __future__ import annotations

import dataclasses
import json
import shutil
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from stormlog.integrations._trainer import TrainerRecorder
from stormlog.telemetry import load_telemetry_events

torch: Any = pytest.importorskip("torch")


def recorded(directory: Path) -> list[Any]:
    """The events of the one session, without those that a bundle in its directory repeats."""
    (session,) = [path.parent for path in directory.rglob("session.json")]
    copy = directory.parent / f"{directory.name}-session"
    shutil.copytree(session, copy, ignore=shutil.ignore_patterns("oom_dump_*"))
    return list(load_telemetry_events(str(copy)))


def phases(events: list[Any]) -> list[tuple[str, ...]]:
    """The path of each phase that was entered, in order."""
    entered = [event for event in events if event.event_type == "phase_enter"]
    return [tuple(event.metadata["phase_scope"]["path"]) for event in entered]


def of_steps(events: list[Any]) -> list[tuple[Any, Any]]:
    found = [event.metadata for event in events if event.event_type == "training_step"]
    assert all(metadata["peak_bytes"] >= metadata["end_bytes"] > 0 for metadata in found)
    return [(metadata["epoch"], metadata["step"]) for metadata in found]


def bundle_of(directory: Path) -> dict[str, Any]:
    (metadata,) = directory.rglob("oom_dump_*/metadata.json")
    return dict(json.loads(metadata.read_text()))


class Hungry(torch.nn.Module):  # type: ignore[misc]
    """A layer that runs out of memory at its third batch in the second epoch."""

    def __init__(self, fails_at: int | None = None) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)
        self.fails_at = fails_at
        self.calls = 0

    def forward(self, batch: Any) -> Any:
        if self.calls == self.fails_at:
            bytearray(1 << 62)
        self.calls += 1
        return self.layer(batch)


@dataclasses.dataclass
class Forecast:
    """Delivers a forecast to a recorder, as the tracker's thread would, at the start of its second step."""

    recorder: TrainerRecorder

    def __call__(self, step: int) -> None:
        from stormlog.tracker import TrackingEvent

        if step == 1 and self.recorder.tracker is not None:
            metadata = {"alert": "forecast_critical", "seconds_to_limit": 9.0}
            event = TrackingEvent(0.0, "critical", 1, 1, 0, 0, "9 s to the limit", metadata=metadata)
            self.recorder.tracker._deliver(event)


class TestLightning:
    def fit(self, fails_at: int | None, **options: Any) -> Any:
        pytest.importorskip("lightning")
        import lightning.pytorch as lightning
        from stormlog.integrations.lightning import StormlogCallback

        class Module(lightning.LightningModule):  # type: ignore[misc]
            def __init__(self) -> None:
                super().__init__()
                self.inner = Hungry(fails_at)

            def training_step(self, batch: Any, index: int) -> Any:
                forecast(index)
                return self.inner(batch[0]).sum()

            def configure_optimizers(self) -> Any:
                return torch.optim.SGD(self.parameters(), lr=0.1)

        callback = StormlogCallback(**options)
        forecast = Forecast(callback.recorder) if "on_forecast" in options else lambda _: None
        data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.ones(12, 4)), batch_size=3)
        trainer = lightning.Trainer(
            max_epochs=2,
            accelerator="cpu",
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            callbacks=[callback],
        )
        try:
            trainer.fit(Module(), data)
        except MemoryError:
            assert fails_at is not None
        return callback.recorder

    @pytest.mark.filterwarnings("ignore")
    def test_epochs_and_steps_are_phases_with_peaks(self, tmp_path: Path) -> None:
        recorder = self.fit(None, directory=tmp_path)
        assert [peak[:2] for peak in recorder.peaks] == [
            (epoch, step) for epoch in (0, 1) for step in range(4)
        ]
        events = recorded(tmp_path)
        assert of_steps(events) == [(epoch, step) for epoch in (0, 1) for step in range(4)]
        assert phases(events)[:3] == [("fit",), ("fit", "epoch"), ("fit", "epoch", "step")]

    @pytest.mark.filterwarnings("ignore")
    def test_an_error_in_a_step_leaves_a_bundle_that_names_it(self, tmp_path: Path) -> None:
        self.fit(6, directory=tmp_path)
        assert bundle_of(tmp_path)["context"] == "epoch 1, step 2"

    @pytest.mark.filterwarnings("ignore")
    def test_a_forecast_stops_the_training_or_calls_the_users_function(self, tmp_path: Path) -> None:
        stopped = self.fit(None, directory=tmp_path / "stopped", on_forecast="stop")
        assert [peak[:2] for peak in stopped.peaks][-1] == (0, 1)
        forecasts: list[Any] = []
        called = self.fit(None, directory=tmp_path / "called", on_forecast=forecasts.append)
        assert [event.metadata["seconds_to_limit"] for event in forecasts] == [9.0, 9.0], "one an epoch"
        assert len(called.peaks) == 8

    def test_callback_works_with_pytorch_lightning_alone(self, tmp_path: Path) -> None:
        pytest.importorskip("pytorch_lightning")
        program = (
            "import sys\n"
            "sys.modules['lightning'] = None\n"
            "import pytorch_lightning as lightning, torch\n"
            "from stormlog.integrations.lightning import StormlogCallback\n"
            "from pytorch_lightning.demos.boring_classes import BoringModel\n"
            "callback = StormlogCallback(directory=sys.argv[1])\n"
            "trainer = lightning.Trainer(max_steps=2, accelerator='cpu', callbacks=[callback],\n"
            "    enable_checkpointing=False, enable_progress_bar=False, limit_val_batches=0, logger=False)\n"
            "trainer.fit(BoringModel())\n"
            "print(isinstance(callback, lightning.Callback), len(callback.recorder.peaks))\n"
        )
        command = [sys.executable, "-c", program, str(tmp_path)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.stdout.splitlines()[-1:] == ["True 2"], done.stderr


def test_bundle_names_the_open_step_and_phase(tmp_path: Path) -> None:
    with TrainerRecorder(directory=tmp_path) as recorder:
        recorder.begin_epoch(1)
        recorder.begin_step(4)
        with pytest.raises(MemoryError), recorder.phase("backward"), recorder.capture_oom():
            raise MemoryError
        first = recorder.last_bundle
        recorder.end_step()
        with pytest.raises(MemoryError), recorder.phase("validation"), recorder.capture_oom():
            raise MemoryError
    contexts = [
        json.loads((Path(path or "") / "metadata.json").read_text())["context"]
        for path in (first, recorder.last_bundle)
    ]
    assert contexts == ["epoch 1, step 4, backward", "epoch 1, after step 4, validation"]


class TestTransformers:
    def trainer(self, tmp_path: Path, fails_at: int | None) -> Any:
        transformers = pytest.importorskip("transformers")

        class Model(torch.nn.Module):  # type: ignore[misc]
            def __init__(self) -> None:
                super().__init__()
                self.inner = Hungry(fails_at)

            def forward(self, x: Any) -> dict[str, Any]:
                return {"loss": self.inner(x).sum()}

        arguments = transformers.TrainingArguments(
            output_dir=str(tmp_path / "out"),
            num_train_epochs=2,
            per_device_train_batch_size=3,
            report_to=[],
            save_strategy="no",
            use_cpu=True,
            disable_tqdm=True,
        )
        data = [{"x": torch.ones(4)} for _ in range(12)]
        return transformers.Trainer(model=Model(), args=arguments, train_dataset=data)

    @pytest.mark.filterwarnings("ignore")
    def test_epochs_and_steps_are_phases_with_peaks(self, tmp_path: Path) -> None:
        from stormlog.integrations.transformers import attach

        trainer = self.trainer(tmp_path, None)
        callback = attach(trainer, directory=tmp_path / "runs")
        trainer.train()
        expected = [(epoch, 4 * epoch + step) for epoch in (0, 1) for step in range(4)]
        assert [peak[:2] for peak in callback.recorder.peaks] == expected
        assert of_steps(recorded(tmp_path / "runs")) == expected

    @pytest.mark.filterwarnings("ignore")
    def test_an_error_in_a_step_leaves_a_bundle_and_a_forecast_stops(self, tmp_path: Path) -> None:
        from stormlog.integrations.transformers import attach

        trainer = self.trainer(tmp_path, 6)
        attach(trainer, directory=tmp_path / "failed")
        with pytest.raises(MemoryError):
            trainer.train()
        assert bundle_of(tmp_path / "failed")["context"] == "epoch 1, step 6"
        trainer = self.trainer(tmp_path, None)
        callback = attach(trainer, directory=tmp_path / "stopped", on_forecast="stop")
        inner, forecast = trainer.training_step, Forecast(callback.recorder)

        def step(*args: Any, **kwargs: Any) -> Any:
            forecast(callback.recorder.step)
            return inner(*args, **kwargs)

        trainer.training_step = step
        trainer.train()
        assert trainer.state.global_step == 2

    @pytest.mark.filterwarnings("ignore")
    def test_error_of_the_optimizer_leaves_a_bundle_and_ends_the_recording(self, tmp_path: Path) -> None:
        from stormlog.integrations.transformers import attach

        trainer = self.trainer(tmp_path, None)
        callback = attach(trainer, directory=tmp_path / "runs")
        trainer.create_optimizer()

        def step(*_: Any, **__: Any) -> None:
            bytearray(1 << 62)

        trainer.optimizer.step = step
        with pytest.raises(MemoryError):
            trainer.train()
        assert bundle_of(tmp_path / "runs")["context"] == "epoch 0, step 0"
        assert callback.recorder.tracker is None


class TestAccelerate:
    def test_steps_are_the_optimizers_and_logs_are_recorded(self, tmp_path: Path) -> None:
        accelerate = pytest.importorskip("accelerate")
        from stormlog.integrations.accelerate import StormlogTracker

        tracker = StormlogTracker(directory=tmp_path)
        accelerator = accelerate.Accelerator(cpu=True, log_with=tracker)
        accelerator.init_trackers("test")
        model = Hungry(3)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        model, optimizer = accelerator.prepare(model, optimizer)
        with pytest.raises(MemoryError), tracker.recorder.capture_oom():
            for step in range(5):
                accelerator.backward(model(torch.ones(2, 4)).sum())
                optimizer.step()
                accelerator.log({"loss": 0.5, "tensor": object()}, step=step)
        accelerator.end_training()
        events = recorded(tmp_path)
        assert of_steps(events)[:3] == [(None, 0), (None, 1), (None, 2)]
        logs = [event.metadata for event in events if event.event_type == "training_log"]
        assert [(log["loss"], log["step"]) for log in logs] == [(0.5, 0), (0.5, 1), (0.5, 2)]
        assert bundle_of(tmp_path)["context"] == "step 3"


FSDP = """
import os, sys
from pathlib import Path
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.distributed.fsdp import fully_shard
from stormlog.integrations.fsdp import StormlogRecorder

def work(rank, root):
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE="2")
    dist.init_process_group("gloo", init_method=f"file://{root}/store", rank=rank, world_size=2)
    mesh = torch.distributed.device_mesh.init_device_mesh("cpu", (2,))
    model = torch.nn.Sequential(torch.nn.Linear(256, 256, bias=False), torch.nn.Linear(256, 256, bias=False))
    for layer in model:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters())
    with StormlogRecorder(model, optimizer, directory=f"{root}/runs") as recorder:
        recorder.begin_epoch(0)
        for _ in range(2):
            model(torch.ones(4, 256)).sum().backward()
            optimizer.step()
        recorder.end_epoch()
    dist.destroy_process_group()

if __name__ == "__main__":
    mp.start_processes(work, args=(sys.argv[1],), nprocs=2, start_method="fork")
"""


class TestFsdp:
    def test_sparse_gradient_counts_its_indices_and_values(self) -> None:
        from stormlog.integrations.fsdp import sharded_categories

        model = torch.nn.Embedding(1000, 16, sparse=True)
        model(torch.tensor([1, 2, 3])).sum().backward()
        held = sharded_categories(model)
        assert held["parameters_bytes"] == 1000 * 16 * 4
        # The indices may be a view of the batch's.
        assert 3 * 16 * 4 <= held["gradients_bytes"] <= 3 * 16 * 4 + 2 * 3 * 8

    def test_each_rank_records_the_bytes_of_its_shards(self, tmp_path: Path) -> None:
        (tmp_path / "main.py").write_text(FSDP, encoding="utf-8")
        words = [sys.executable, "-W", "ignore", str(tmp_path / "main.py"), str(tmp_path)]
        done = subprocess.run(words, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        full = 2 * 256 * 256 * 4
        sessions = sorted(path.parent for path in tmp_path.rglob("session.json"))
        assert len(sessions) == 2, sessions
        for rank, session in enumerate(sessions):
            events = list(load_telemetry_events(str(session)))
            assert {event.rank for event in events} == {rank}
            held = [event.metadata for event in events if event.event_type == "memory_categories"]
            assert held[0]["parameters_bytes"] == full // 2
            assert held[0]["gradients_bytes"] == full // 2
            moments = held[0]["optimizer_state_bytes"]
            assert full <= moments < full + 64, "two moments of each parameter of the shard, and step counts"
            assert held[0]["full_parameters_bytes"] == full


DEEPSPEED = """
import os, sys
import torch
os.environ.update(RANK=sys.argv[2], LOCAL_RANK=sys.argv[2], WORLD_SIZE="2", MASTER_ADDR="127.0.0.1")
os.environ.update(MASTER_PORT=sys.argv[3], DS_ACCELERATOR="cpu")
torch.distributed.init_process_group(
    "gloo", init_method=f"file://{sys.argv[1]}/store", rank=int(sys.argv[2]), world_size=2)
import deepspeed
# Its own collectives need a compiler when it starts; gloo does without.
deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
from stormlog.integrations.deepspeed import attach
for stage in (1, 3):
    layers = [torch.nn.Linear(256, 256, bias=False) for _ in range(2)]
    model = torch.nn.Sequential(*layers)
    optimizer = torch.optim.AdamW(model.parameters())
    config = {"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": stage},
        "zero_allow_untested_optimizer": True, "zero_force_ds_cpu_optimizer": False}
    engine, _, _, _ = deepspeed.initialize(
        model=model, optimizer=optimizer, config=config, dist_init_required=False)
    with attach(engine, directory=f"{sys.argv[1]}/stage{stage}"):
        for _ in range(2):
            engine.backward(engine(torch.ones(1, 256)).sum())
            engine.step()
"""


class TestDeepSpeed:
    def test_each_rank_records_the_bytes_of_its_partitions(self, tmp_path: Path) -> None:
        pytest.importorskip("deepspeed")
        (tmp_path / "main.py").write_text(DEEPSPEED, encoding="utf-8")
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = str(free.getsockname()[1])
        common = [sys.executable, "-W", "ignore", str(tmp_path / "main.py"), str(tmp_path)]
        ranks = [
            subprocess.Popen([*common, str(rank), port], stderr=subprocess.PIPE, text=True)
            for rank in range(2)
        ]
        errors = [rank.communicate()[1] for rank in ranks]
        assert [rank.returncode for rank in ranks] == [0, 0], errors
        full = 2 * 256 * 256 * 4
        for stage, parameters in ((1, full), (3, full // 2)):
            sessions = sorted(path.parent for path in (tmp_path / f"stage{stage}").rglob("session.json"))
            assert len(sessions) == 2, sessions
            for session in sessions:
                events = list(load_telemetry_events(str(session)))
                paths = phases(events)
                assert {path[-1] for path in paths} >= {"forward", "backward", "optimizer step"}, paths
                (held,) = [event.metadata for event in events if event.event_type == "memory_categories"]
                assert held["full_parameters_bytes"] == full
                assert held["parameters_bytes"] == parameters
                # Two moments of this rank's half, and a master copy of it.
                assert full <= held["optimizer_state_bytes"] <= full + full // 2 + 4096


RAY = """
import json, os, sys
import ray, ray.train
from ray.train import RunConfig, ScalingConfig
from ray.train.v2.api.data_parallel_trainer import DataParallelTrainer
from stormlog.integrations.ray import StormlogCallback, worker_recorder

def train(config):
    with worker_recorder(directory=config["root"] + "/runs") as recorder:
        for step in range(2):
            recorder.begin_step(step)
            held = bytearray((1 + ray.train.get_context().get_world_rank()) * (32 << 20))
            del held
            recorder.end_step()
            ray.train.report(recorder.metrics())

if __name__ == "__main__":
    root = sys.argv[1]
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    callback = StormlogCallback(directory=root + "/report")
    run = RunConfig(storage_path=root + "/ray", callbacks=[callback])
    DataParallelTrainer(train, train_loop_config={"root": root}, run_config=run,
        scaling_config=ScalingConfig(num_workers=2, resources_per_worker={"CPU": 0.5})).fit()
    print(callback.report())
    ray.shutdown()
"""


class TestRay:
    def test_workers_record_themselves_and_the_driver_has_a_report(self, tmp_path: Path) -> None:
        pytest.importorskip("ray")
        (tmp_path / "main.py").write_text(RAY, encoding="utf-8")
        words = [sys.executable, "-W", "ignore", str(tmp_path / "main.py"), str(tmp_path)]
        done = subprocess.run(words, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        lines = done.stdout.splitlines()
        assert [line.partition(":")[0] for line in lines] == ["rank 1", "rank 0"], done.stdout
        sessions = [path.parent for path in (tmp_path / "runs").rglob("session.json")]
        ranks = {next(iter(load_telemetry_events(str(session)))).rank for session in sessions}
        assert ranks == {0, 1}
