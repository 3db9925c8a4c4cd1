# Run inside the process by sys.remote_exec: loads the recording library and calls it. Leaves no name behind.
def _enter():
    import ctypes
    import os

    library, function, spec, answer = __ARGUMENTS__
    try:
        # With the GIL held: what is put into Python, and taken out of it, needs it.
        hook = ctypes.PyDLL(library)
        if spec is None:
            result = hook[function]()
        else:
            # The last argument is null; a function that does not have it does not look.
            hook[function].argtypes = [ctypes.c_uint, ctypes.c_char_p, ctypes.c_void_p]
            result = hook[function](1, os.fsencode(spec), None)
        text = f"stormlog: {result}"
    except BaseException as error:
        text = f"stormlog-error: {error}"
    # Written plainly: the recording has begun, and a file object would be in it.
    file = os.open(answer, os.O_WRONLY | os.O_TRUNC)
    os.write(file, text.encode(errors="replace"))
    os.close(file)


_enter()
del _enter
