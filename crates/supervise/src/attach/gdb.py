# Run inside gdb, which has stopped the process: calls one function of the recording library there, then lets go.
# It must never call from a thread that is inside the allocator, the loader or a signal handler: there a call could
# wait for itself for ever. Other threads run on during the call, so only the calling thread's own stack matters.
import errno
import gdb
import os

UNSAFE = (
    "malloc", "calloc", "realloc", "free", "memalign", "posix_memalign", "aligned_alloc", "_int_", "sysmalloc", "systrim",
    "tcache", "arena_get", "dl", "_dl_", "__libc_fork", "fork", "vfork", "__run_fork", "exit", "__run_exit", "<signal handler",
    "je_", "mi_", "tc_",
)  # fmt: skip


def is_unsafe(frame):
    name = frame.name() or ""
    if frame.type() == gdb.SIGTRAMP_FRAME:
        return True
    plain = name.removeprefix("__libc_").removeprefix("__GI_").removeprefix("__")
    return any(plain.startswith(word) or name.startswith(word) for word in UNSAFE)


def outermost_unsafe():
    """The caller side of the last unsafe frame of the selected thread; None when the thread is safe as it stands."""
    frame, found, depth = gdb.newest_frame(), None, 0
    while frame is not None and depth < 64:
        if is_unsafe(frame):
            found = frame
        frame, depth = frame.older(), depth + 1
    return found


def waits():
    """Whether the selected thread is in a system call: entered by a function, over which no vector register is kept."""
    pc = gdb.newest_frame().pc()
    return bytes(gdb.selected_inferior().read_memory(pc - 2, 2)) == b"\x0f\x05"


def choose():
    # Where gdb keeps the basic registers only, those of vectors are lost in a call.
    basic = "STORMLOG_BASIC_REGISTERS" in os.environ
    safe = []
    for thread in gdb.selected_inferior().threads():
        thread.switch()
        if outermost_unsafe() is None:
            if not basic or waits():
                return
            safe.append(thread)
    if safe:
        # Right after a return no vector register is in use either.
        safe[0].switch()
        gdb.newest_frame().select()
        gdb.execute("finish", to_string=True)
        if outermost_unsafe() is None:
            return
    # Every thread is inside: let the first one out.
    gdb.selected_inferior().threads()[0].switch()
    outermost_unsafe().select()
    gdb.execute("finish", to_string=True)


def call(expression):
    return int(gdb.parse_and_eval(expression))


def text(words):
    return '"' + words.replace("\\", "\\\\").replace('"', '\\"') + '"'


def main():
    gdb.execute("set pagination off")
    gdb.execute("set confirm off")
    gdb.execute("set unwindonsignal on")
    # A signal of the program's own that arrives during a call would end the call half way, and the process with it.
    gdb.execute("handle all nostop noprint pass", to_string=True)
    choose()
    library, spec = os.environ["STORMLOG_LIBRARY"], os.environ.get("STORMLOG_HOOK_SPEC")
    function = os.environ["STORMLOG_FUNCTION"]
    if spec is None:
        try:
            return call(f"((int(*)(void)){function})()")
        except gdb.error as error:
            if "No symbol" not in str(error):
                raise
            return errno.ESRCH  # no library, no recording
    try:
        loaded = call(f"((long(*)(const char*,int))dlopen)({text(library)}, 2)")
    except gdb.error:
        loaded = call(f"((long(*)(const char*,int))__libc_dlopen_mode)({text(library)}, 2)")
    if loaded == 0:
        return -1
    return call(f"((int(*)(unsigned,const char*)){function})(1, {text(spec)})")


try:
    print(f"stormlog: {main()}", flush=True)
except gdb.error as error:
    print(f"stormlog-error: {error}", flush=True)
