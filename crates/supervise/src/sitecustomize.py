"""Reports the exception a Python program dies of to the supervisor that started it (stormlog run), and has
torch recorded once the program imports it, where the stormlog package is installed.

Python imports this at start. It must be invisible: the standard library only, every hook chained, nothing
printed, no name left behind, and no error in here reaches the program.

The names of these functions are known to the heap recording (injected.rs of the hook): their frames are not
in captures, and of functions with `_stormlog_unrecorded` in their names nothing is recorded at all.
"""


def _stormlog_install():
    import os
    import sys

    # Given back when memory is what ran out, so that there is some to report with: room for several arenas of
    # CPython's own allocator, of 1 MiB each, and for the pass over what keeps the memory. The pages of new bytes,
    # unlike those of a new bytearray, are not written, so that they cost address space only.
    reserve = []

    def _stormlog_unrecorded_prepare():
        import threading
        import time

        reserve.append(bytes(16 << 20))
        return threading, time.time_ns, _scrubber()

    publish_backward = _stormlog_install_backward
    here = os.path.dirname(os.path.abspath(__file__))
    # names in a run directory
    run = os.environ.get(run_variable)

    def run_the_users_own():
        import importlib.machinery
        import importlib.util

        rest = [entry for entry in sys.path if os.path.abspath(entry or ".") != here]
        sys.path[:] = rest
        spec = importlib.machinery.PathFinder.find_spec("sitecustomize", rest)
        if spec is not None and spec.loader is not None:
            module = importlib.util.module_from_spec(spec)
            sys.modules["sitecustomize"] = module
            spec.loader.exec_module(module)

    count = [0]

    # Nothing is imported to report: memory may be what the program died of, and an import needs much of it.
    def _stormlog_unrecorded_json(value):
        if value is None:
            return "null"
        if isinstance(value, int):
            return str(int(value))
        if isinstance(value, str):
            value = value.replace("\\", "\\\\").replace('"', '\\"')
            for number in range(32):
                value = value.replace(chr(number), f"\\u{number:04x}")
            return f'"{value}"'
        if isinstance(value, dict):
            pairs = [f'"{name}": {_stormlog_unrecorded_json(part)}' for name, part in value.items()]
            return "{" + ", ".join(pairs) + "}"
        return "[" + ", ".join([_stormlog_unrecorded_json(part) for part in value]) + "]"

    def _stormlog_unrecorded_report(kind, error, traceback, thread):
        reserve.clear()
        frames = []
        while traceback is not None and len(frames) < 200:
            code = traceback.tb_frame.f_code
            frames.append({"file": code.co_filename, "line": traceback.tb_lineno, "function": code.co_name})
            traceback = traceback.tb_next
        # What it was raised from, or while handling: memory may have run out there.
        chain = []
        while error is not None and len(chain) < 16:
            kind = type(error)
            number = getattr(error, "errno", None)
            chain.append(
                {
                    "type": kind.__qualname__,
                    "module": kind.__module__,
                    "bases": [f"{base.__module__}.{base.__qualname__}" for base in kind.__mro__[1:-1]],
                    "message": scrubbed(str(error)[:20000]),
                    "errno": number if isinstance(number, int) else None,
                }
            )
            hidden = error.__suppress_context__
            error = error.__cause__ or (None if hidden else error.__context__)
        text = _stormlog_unrecorded_json(
            {
                "pid": os.getpid(),
                "timestamp_ns": time_ns(),
                "thread": thread,
                **chain[0],
                "raised_from": chain[1:],
                "frames": frames,
            }
        )
        # A pool whose threads fail all day leaves its first failures and its last.
        count[0] = min(count[0] + 1, 64)
        folder = os.path.join(run, exceptions)
        path = os.path.join(folder, f"{os.getpid()}-{count[0]}.json")
        handle = os.open(
            path + ".tmp", os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600
        )
        try:
            if os.stat(folder).st_mode & 0o2000:  # a run that is shared with its group
                os.fchmod(handle, 0o640)
            os.write(handle, text.encode("utf-8", "backslashreplace"))
        finally:
            os.close(handle)
        os.rename(path + ".tmp", path)

    def _stormlog_unrecorded_exited():
        """Notes an exit that no exception ended: then its status is the program's choice."""
        if not (hasattr(sys, "last_value") or hasattr(sys, "last_exc")):
            _stormlog_unrecorded_chosen()

    def _stormlog_unrecorded_chosen():
        try:
            flags = os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
            handle = os.open(os.path.join(run, ends), flags)
            try:
                if os.fstat(handle).st_size < ends_max_bytes:
                    os.write(handle, b"%s %d %d\n" % (ends_of_an_exit.encode(), os.getpid(), time_ns()))
            finally:
                os.close(handle)
        except BaseException:
            pass

    def quietly(*arguments):
        try:
            _stormlog_unrecorded_report(*arguments)
        except BaseException:
            pass

    looked = []

    def _stormlog_unrecorded_why(reason, traceback):
        """Have the recording library, where it is preloaded, report what keeps this process's memory."""
        import ctypes

        look = ctypes.PyDLL(None).stormlog_why
        look.argtypes = [ctypes.c_uint, ctypes.c_char_p, ctypes.c_void_p]
        looked.append(reason)
        path = os.path.join(run, retained.replace("%p", str(os.getpid())))
        # PyTorch's allocator has just been asked about the same failure, with more of its memory still held.
        if os.path.exists(path) and time_ns() - os.stat(path).st_mtime_ns < 60_000_000_000:
            handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
            try:
                # A forecast had only a moment to look, and is older than the end.
                if b'"reason":"forecast"' not in os.read(handle, 4096):
                    return
            finally:
                os.close(handle)
        look(1, os.fsencode(f"reason={reason};path={path}"), None if traceback is None else id(traceback))

    def why(reason, traceback=None):
        # Of what is asked for when memory runs out, the first answer stays: later ones are about less.
        if looked or os.environ.get("STORMLOG_WHY") in ("off", "0"):
            return
        try:
            _stormlog_unrecorded_why(reason, traceback)
        except BaseException:
            pass

    def is_about_memory(kind, error):
        try:
            if issubclass(kind, MemoryError) or kind.__name__ == "OutOfMemoryError":
                return True
            # PyTorch's allocator of the host's memory raises a plain RuntimeError.
            return kind is RuntimeError and "allocate memory" in str(error)
        except BaseException:
            return False

    def anonymous():
        """Resident bytes of this process that no file backs, now and at most."""
        with open("/proc/self/status", "rb") as file:
            lines = dict(line.split(b":", 1) for line in file.read().splitlines() if b":" in line)
        return [int(lines[name].split()[0]) << 10 for name in (b"RssAnon", b"VmHWM")]

    def _stormlog_unrecorded_end():
        """Report what keeps the memory of a program that ends with much of what it ever had."""
        try:
            now, most = anonymous()
            if now - grown_from[0] > 32 << 20 and now * 2 > most:
                why("exit")
        except BaseException:
            pass

    def _stormlog_unrecorded_worker_ends():
        """The end of a process of multiprocessing, which knows neither sys.excepthook nor atexit.

        Called while the exception that ends it, if one does, is being handled.
        """
        try:
            kind, error, traceback = sys.exc_info()
            if kind is None or issubclass(kind, SystemExit):
                if reports_exceptions:
                    _stormlog_unrecorded_chosen()
                if reports_keepers:
                    _stormlog_unrecorded_end()
            elif not issubclass(kind, KeyboardInterrupt):
                if reports_exceptions:
                    quietly(kind, error, traceback, "MainThread")
                if is_about_memory(kind, error):
                    why("exception", traceback)
        except BaseException:
            pass

    class Worker:
        """Called by multiprocessing in each forked process, once the finalizers of its parent are forgotten."""

        def begins(self):
            try:
                # What it has of its parent is not its own.
                grown_from[0] = anonymous()[0]
                util = sys.modules["multiprocessing.util"]
                util.Finalize(None, _stormlog_unrecorded_worker_ends, exitpriority=-1_000_000)
            except BaseException:
                pass

    workers = []

    def _stormlog_unrecorded_await_worker():
        util = sys.modules.get("multiprocessing.util")
        if util is not None and not workers:
            workers.append(Worker())
            util.register_after_fork(workers[0], Worker.begins)

    def await_worker():
        try:
            _stormlog_unrecorded_await_worker()
        except BaseException:
            pass

    def on_exception(kind, error, traceback):
        if not issubclass(kind, (SystemExit, KeyboardInterrupt)):
            quietly(kind, error, traceback, "MainThread")
            if is_about_memory(kind, error):
                why("exception", traceback)
        previous(kind, error, traceback)

    def on_thread_exception(arguments):
        if arguments.exc_value is not None and not issubclass(arguments.exc_type, SystemExit):
            name = arguments.thread.name if arguments.thread is not None else None
            quietly(arguments.exc_type, arguments.exc_value, arguments.exc_traceback, name)
            if is_about_memory(arguments.exc_type, arguments.exc_value):
                why("exception", arguments.exc_traceback)
        previous_thread(arguments)

    class AfterFramework:
        def find_spec(self, name, path=None, target=None):
            if name not in awaited:
                return None
            # Those behind this one: two that wait for the same module would ask each other for ever.
            behind = sys.meta_path.index(self) + 1 if self in sys.meta_path else 0
            for finder in sys.meta_path[behind:]:
                find = getattr(finder, "find_spec", None)
                spec = find(name, path, target) if find is not None else None
                if spec is not None:
                    try:
                        tell_when_loaded(spec.loader, self)
                    except BaseException:
                        pass
                    return spec
            return None

    def tell_when_loaded(loader, finder):
        load = loader.exec_module

        def load_and_record(module):
            # Only now: to be asked for a spec is not to be imported.
            if finder in sys.meta_path:
                sys.meta_path.remove(finder)
            vars(loader).pop("exec_module", None)
            load(module)
            try:
                record_framework()
            except BaseException:
                pass

        loader.exec_module = load_and_record

    def record_framework():
        import importlib.util

        if "torch" in sys.modules:
            try:
                publish_backward()
            except BaseException:
                pass  # a torch without this engine: stacks of backward passes are missing, the rest is recorded
        # Looked for, not imported: an older stormlog would import half the world.
        spec = importlib.util.find_spec("stormlog")
        for place in (spec.submodule_search_locations if spec is not None else None) or ():
            if os.path.isfile(os.path.join(place, "auto.py")):
                importlib.import_module("stormlog.auto")
                return

    def _stormlog_unrecorded_take_signal():
        """Have the package answer the signal that the user named, in a program that does not import torch too."""
        import importlib.util

        spec = importlib.util.find_spec("stormlog")
        for place in (spec.submodule_search_locations if spec is not None else None) or ():
            if os.path.isfile(os.path.join(place, "snapshots.py")):
                importlib.import_module("stormlog.snapshots").take_signal()
                return

    def keep_open(handle):
        """Keeps the open file, and so its lock, without a descriptor: by a mapping that no child gets."""
        import mmap

        os.ftruncate(handle, 1)
        try:
            mapping = mmap.mmap(handle, 1, access=mmap.ACCESS_READ, trackfd=False)
        except TypeError:
            # Python 3.12 and older duplicate the descriptor, to the lowest free number.
            number = os.dup(handle)
            os.close(number)
            mapping = mmap.mmap(handle, 1, access=mmap.ACCESS_READ)
            if os.path.sameopenfile(number, handle):
                os.close(number)
        mapping.madvise(mmap.MADV_DONTFORK)
        # It must never be freed: by then its number and, in a child, its address may be another mapping's.
        # The collector does not look into code objects, so this circle stays.
        circle = []
        circle.append(compile("0", "", "eval").replace(co_consts=(mapping, circle)))

    def hold_lock():
        """Takes a lock that ends with this process: readers in other namespaces know by it that we live."""
        import fcntl

        with open("/proc/self/stat", "rb") as file:
            start = int(file.read().rsplit(b")", 1)[1].split()[19])
        path = os.path.join(run, locks, f"{os.getpid()}-{start}")
        handle = os.open(
            path + ".tmp", os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600
        )
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            keep_open(handle)
            os.rename(path + ".tmp", path)
        finally:
            os.close(handle)

    def _stormlog_unrecorded_lock():
        try:
            hold_lock()
        except BaseException:
            pass

    threading, time_ns, scrubbed = _stormlog_unrecorded_prepare()
    if run:
        _stormlog_unrecorded_lock()
        os.register_at_fork(after_in_child=_stormlog_unrecorded_lock)
    awaited = [name for name in ("torch", "jax") if os.environ.get(f"STORMLOG_{name.upper()}") != "0"]
    if os.environ.get("STORMLOG_CUDA_DRIVER", "0") not in ("", "0"):
        # They take memory from the driver without torch. stormlog.auto waits for the same ones.
        awaited += ["cupy", "numba.cuda", "rmm", "pycuda.driver", "cuda.bindings", "tensorflow"]
    if run and awaited:
        sys.meta_path.insert(0, AfterFramework())
    reports_exceptions = bool(run) and os.environ.get("STORMLOG_EXCEPTIONS") != "0"
    reports_keepers = bool(run) and os.environ.get("STORMLOG_WHY") not in ("off", "0")
    grown_from = [16 << 20]  # what an interpreter with a few modules has
    if reports_exceptions or reports_keepers:
        os.register_at_fork(after_in_child=await_worker)
        if "--multiprocessing-fork" in getattr(sys, "orig_argv", ()):
            # A process that multiprocessing starts again: it is about to import this itself.
            import multiprocessing.util  # noqa: F401

            Worker().begins()
    if reports_exceptions:
        previous, previous_thread = sys.excepthook, threading.excepthook
        sys.excepthook, threading.excepthook = on_exception, on_thread_exception
        import atexit

        # The first one registered is the last one called.
        atexit.register(_stormlog_unrecorded_exited)
    if reports_keepers:
        import atexit

        atexit.register(_stormlog_unrecorded_end)
    if run and os.environ.get("STORMLOG_SNAPSHOT_SIGNAL"):
        try:
            _stormlog_unrecorded_take_signal()
        except BaseException:
            pass
    run_the_users_own()


try:
    _stormlog_install()
except BaseException:
    pass
finally:
    del _stormlog_install, _stormlog_install_backward, _scrubber
