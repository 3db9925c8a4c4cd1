tracker.start_tracking()
try:
    with tracker.capture_oom(context="test.simulated_oom", metadata={"scenario_mode": "simulated"}):
        # Simulate an OOM error
        raise RuntimeError("simulated out of memory for demo")
except RuntimeError as exc:
    print(f"Captured simulated OOM: {exc}")
finally:
    tracker.stop_tracking()
print(f"Dump path: {tracker.last_oom_dump_path}")
