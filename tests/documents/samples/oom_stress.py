import torch

tracker.start_tracking()
tensors = []
device = torch.device("cuda")
try:
    with tracker.capture_oom(
        context="stress_test",
        metadata={
            "max_total_mb": 8192,
            "step_mb": 64,
        }
    ):
        # Allocate until OOM
        while True:
            elements = int(64 * 1024 * 1024 / 4)  # 64MB
            block = torch.randn(elements, device=device)
            tensors.append(block)
except RuntimeError as exc:
    print(f"OOM after {len(tensors)} allocations")
    print(f"Dump: {tracker.last_oom_dump_path}")
finally:
    tensors.clear()
    torch.cuda.empty_cache()
    tracker.stop_tracking()
