"""The Keras callback where TensorFlow is not installed, as with Keras 3 on JAX or PyTorch."""

from __future__ import annotations

import subprocess
import sys

TRAINS = """
import copy, importlib.util, logging
find = importlib.util.find_spec
importlib.util.find_spec = lambda name, *more: None if name == "tensorflow" else find(name, *more)
logging.basicConfig(format="%(message)s")
from stormlog.tensorflow import StormlogCallback

def train(callback):
    callback.on_train_begin()
    for epoch in range(2):
        callback.on_epoch_begin(epoch)
        for step in range(2):
            callback.on_train_batch_begin(step)
            callback.on_train_batch_end(step)
        callback.on_test_begin()
        callback.on_test_end()
        callback.on_epoch_end(epoch, {})
    callback.on_train_end()

callback = StormlogCallback(stop_before_limit=60, log_peak=True)
train(callback)
train(callback)
print(callback.tracker, len(callback.steps))
"""


def test_training_without_tensorflow_continues_with_one_warning() -> None:
    done = subprocess.run([sys.executable, "-c", TRAINS], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "None 0\n"), done.stderr
    (warning,) = done.stderr.splitlines()
    assert "training continues: TensorFlow is required" in warning
