# Run inside the process by sys.remote_exec: loads the recording library and calls it. Leaves no name behind.
def _enter():
    import ctypes

    library, order, answer = __ARGUMENTS__
    try:
        hook = ctypes.CDLL(library)
        if order is None:
            result = hook.stormlog_heap_stop()
        else:
            hook.stormlog_heap_start.argtypes = [ctypes.c_uint, ctypes.c_char_p]
            result = hook.stormlog_heap_start(1, order.encode())
        text = f"stormlog: {result}"
    except BaseException as error:
        text = f"stormlog-error: {error}"
    with open(answer, "w") as file:
        file.write(text)


_enter()
del _enter
