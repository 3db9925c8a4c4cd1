"""The main thread dies of a MemoryError; a thread that Python still waits for fails after it."""

import threading


def work():
    threading.main_thread().join()
    raise KeyError("late")


threading.Thread(target=work, name="saver").start()
raise MemoryError
