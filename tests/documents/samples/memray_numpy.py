def leak_numpy() -> None:
    """Trigger an OOM error by allocating progressively larger NumPy float64 arrays."""
    print("Triggering OOM with a single native NumPy array...")
    current_elements = (10 * 1024 * 1024) // 8  # 8 bytes per float64
    arr = None
    while True:
        if arr is not None:
            del arr  # Explicitly free memory before the next allocation
        mb_size = (current_elements * 8) // (1024**2)
        print(f"Attempting to allocate {mb_size} MB float64 array...")
        # This single C-level malloc will eventually fail and raise MemoryError
        arr = np.ones(current_elements, dtype=np.float64)
        current_elements = int(current_elements * 1.5)
