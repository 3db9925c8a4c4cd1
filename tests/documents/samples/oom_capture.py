tracker.start_tracking()
try:
    with tracker.capture_oom(
        context="training.forward_pass", metadata={"batch_size": 128, "model": "resnet50"}
    ):
        # Code that might OOM
        outputs = model(large_batch)
        loss = criterion(outputs, targets)
        loss.backward()
except RuntimeError as e:
    print(f"OOM occurred: {e}")
    print(f"Dump saved to: {tracker.last_oom_dump_path}")
finally:
    tracker.stop_tracking()
