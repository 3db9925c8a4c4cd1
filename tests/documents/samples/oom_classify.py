from gpumemprof.oom_flight_recorder import classify_oom_exception

try:
    # Code that might fail
    tensor = torch.randn(1000000, 1000000, device="cuda")
except Exception as exc:
    classification = classify_oom_exception(exc)
    if classification.is_oom:
        print(f"OOM detected: {classification.reason}")
        # Dump was automatically captured
    else:
        print("Non-OOM error")
        raise
