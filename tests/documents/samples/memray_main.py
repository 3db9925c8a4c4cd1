if __name__ == "__main__":
    limit_memory(1 * 1024**3)
    try:
        if secrets.choice([True, False]):
            leak_python()
        else:
            leak_numpy()
    except MemoryError:
        print("\n[!] MemoryError caught. Memray can now flush the capture file to disk.")
