def leak_python() -> None:
    """Trigger an OOM error by allocating progressively larger Python bytes objects."""
    print("Triggering OOM with a single pure Python bytes object...")
    current_size = 10 * 1024 * 1024  # Start at 10 MB
    data = None
    while True:
        if data is not None:
            del data  # Explicitly free memory before the next allocation
        print(f"Attempting to allocate {current_size // (1024**2)} MB bytes object...")
        data = os.urandom(current_size)
        current_size = int(current_size * 1.5)
