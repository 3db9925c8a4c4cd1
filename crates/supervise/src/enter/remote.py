# Run inside the process by sys.remote_exec: loads the recording library and calls it. Leaves no name behind.
def _enter():
    import ctypes
    import os

    library, order, answer = __ARGUMENTS__
    try:
        # With the GIL held: what is put into Python, and taken out of it, needs it.
        hook = ctypes.PyDLL(library)
        if order is None:
            result = hook.stormlog_heap_stop()
        else:
            hook.stormlog_heap_start.argtypes = [ctypes.c_uint, ctypes.c_char_p]
            result = hook.stormlog_heap_start(1, os.fsencode(order))
        text = f"stormlog: {result}"
    except BaseException as error:
        text = f"stormlog-error: {error}"
    # Written plainly: the recording has begun, and a file object would be in it.
    file = os.open(answer, os.O_WRONLY | os.O_TRUNC)
    os.write(file, text.encode(errors="replace"))
    os.close(file)


_enter()
del _enter
