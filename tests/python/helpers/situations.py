"""The situations that programs get into, as data: what is started, in what surroundings, and what is sent.

Each is observed bare, under `stormlog run` and under `stormlog run --heap` by test_situations.py. A program
ends by itself or by what is sent to it, never after a time.
"""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from textwrap import dedent

# Variables that a program sees because it is recorded; docs/run.md gives the reason of each.
OUR_VARIABLES = {
    "LD_PRELOAD",
    "PYTHONPATH",
    "STORMLOG_CUDA_DRIVER",
    "STORMLOG_EXCEPTIONS",
    "STORMLOG_HEAP",
    "STORMLOG_RUN_DIR",
    "STORMLOG_TORCH",
}

# Where a recorded program differs from a bare one, by situation and mode, and why; also in docs/run.md.
EXPECTED = {
    ("descriptors", "run"): "a recorded process holds its capture open",
    ("descriptors", "heap"): "a recorded process holds its capture open",
    ("descriptors of a child", "run"): "a recorded process holds its capture open",
    ("descriptors of a child", "heap"): "a recorded process holds its capture open",
    ("closed streams of a shell", "run"): "a recorded process holds its capture open",
    ("closed streams of a shell", "heap"): "a recorded process holds its capture open",
    ("signal masks", "run"): "the recording library handles SIGBUS: its capture may be truncated",
    ("signal masks", "heap"): "the recording library handles SIGBUS: its capture may be truncated",
    ("signal masks of a child", "run"): "the recording library handles SIGBUS: its capture may be truncated",
    ("signal masks of a child", "heap"): "the recording library handles SIGBUS: its capture may be truncated",
    ("sys.path and modules", "run"): "the injected sitecustomize is a module of the program",
    ("sys.path and modules", "heap"): "the injected sitecustomize is a module of the program",
    ("leader of group and session", "run"): "the supervisor leads the group and the session",
    ("leader of group and session", "heap"): "the supervisor leads the group and the session",
}

SOURCES = {
    "crash": """
        #include <stdlib.h>
        #include <string.h>
        int main(int c, char **v) {
            if (c > 1 && !strcmp(v[1], "abort")) abort();
            if (c > 1 && !strcmp(v[1], "fpe")) { volatile int a = 0; return 1 / a; }
            if (c > 1 && !strcmp(v[1], "ill")) __builtin_trap();
            volatile int *p = 0; *p = 1; return 0;
        }""",
    "seven": "int main(void) { return 7; }",
    "traces": """
        #include <signal.h>
        #include <stdio.h>
        #include <stdlib.h>
        #include <unistd.h>
        #include <sys/ptrace.h>
        #include <sys/wait.h>
        int main(void) {
            pid_t p = fork(); int s;
            if (!p) { ptrace(PTRACE_TRACEME, 0, 0, 0); raise(SIGSTOP); free(malloc(100)); _exit(5); }
            waitpid(p, &s, 0); printf("stopped %d\\n", WIFSTOPPED(s));
            ptrace(PTRACE_CONT, p, 0, 0); waitpid(p, &s, 0); printf("exit %d\\n", WEXITSTATUS(s));
            return WEXITSTATUS(s);
        }""",
}
FILES = {
    "pool.py": """
import multiprocessing as mp
def square(x): return x * x
if __name__ == "__main__":
    mp.set_start_method("spawn")
    with mp.Pool(3) as pool: print(sum(pool.map(square, range(100))))
""",
    "not-executable": "x",
}


@dataclass(frozen=True)
class Situation:
    """A program, what surrounds it, and what is done to it after its first line."""

    name: str
    words: list[str]
    # These many words stay outside of `stormlog run`: nohup, timeout.
    outside: int = 0
    # Before the program is executed, in its process.
    before: Callable[[], object] | None = None
    input: bytes | None = None
    # Sent after the first line; to the group where asked.
    sent: tuple[int, ...] = ()
    to_group: bool = False
    # A file whose appearance ends the observation: a daemon's.
    leaves: str | None = None
    # What is compared.
    compared: tuple[str, ...] = ("status", "out", "err")
    variables: dict[str, str] = field(default_factory=dict)


def python(code: str) -> list[str]:
    return [sys.executable, "-c", dedent(code)]


def waiting(handlers: str = "") -> list[str]:
    """A program that waits for a signal."""
    start = "import os, signal, sys\n" + dedent(handlers)
    return python(f"{start}\nprint('up', flush=True)\nwhile True: signal.pause()")


def status_of(*names: str) -> list[str]:
    return ["grep", "-E", "|".join(f"^{name}:" for name in names), "/proc/self/status"]


def closing(*streams: int) -> Callable[[], None]:
    def close() -> None:
        for stream in streams:
            os.close(stream)

    return close


def ignoring(*numbers: int) -> Callable[[], None]:
    def ignore() -> None:
        for number in numbers:
            signal.signal(number, signal.SIG_IGN)

    return ignore


def limiting(kind: int, soft: int, hard: int) -> Callable[[], None]:
    return lambda: resource.setrlimit(kind, (soft, hard))


def control(number: int, value: int) -> Callable[[], None]:
    return lambda: ctypes.CDLL(None).prctl(number, value, 0, 0, 0)


def write_to(path: str, text: str) -> Callable[[], None]:
    def write() -> None:
        Path(path).write_text(text)

    return write


ENDS = [
    Situation("exit 0", python("print('hi')")),
    Situation("sys.exit(3)", python("import sys; sys.exit(3)")),
    Situation("sys.exit of a text", python("import sys; sys.exit('bye')")),
    Situation("sys.exit(256)", python("import sys; sys.exit(256)")),
    Situation("os._exit(9)", python("import os; os._exit(9)")),
    Situation("exception", python("def f():\n 1/0\nf()")),
    Situation("MemoryError", python("x = bytearray(1 << 50)")),
    Situation("exception group", python("raise ExceptionGroup('a', [ValueError(1), TypeError(2)])")),
    Situation("KeyboardInterrupt", python("raise KeyboardInterrupt")),
    Situation("own excepthook", python("import sys\nsys.excepthook = lambda *a: print('mine', a[0])\n1/0")),
    Situation(
        "sys.exit in a thread",
        python(
            """
            import threading, sys
            t = threading.Thread(target=lambda: sys.exit(4))
            t.start(); t.join(); print('main')
            """
        ),
    ),
    Situation(
        "os._exit in a thread",
        python(
            """
            import threading, os, signal
            threading.Thread(target=lambda: os._exit(4)).start()
            signal.pause()
            """
        ),
    ),
    Situation(
        "exception in a thread",
        python(
            "import threading\nt = threading.Thread(target=lambda: 1/0)\nt.start(); t.join(); print('main')"
        ),
    ),
    Situation("exit handlers", python("import atexit\nfor x in 'ab': atexit.register(print, x)")),
    Situation("exit 7 of a C program", ["./seven"]),
    Situation("exit 7 of a static program", ["./seven-static"]),
    Situation("segmentation fault", ["./crash"]),
    Situation("abort", ["./crash", "abort"]),
    Situation("SIGFPE", ["./crash", "fpe"]),
    Situation("SIGILL", ["./crash", "ill"]),
    Situation("segmentation fault in Python", python("import ctypes; ctypes.string_at(0)")),
    Situation(
        "faulthandler",
        [sys.executable, "-X", "faulthandler", "-c", "import faulthandler; faulthandler._sigsegv()"],
    ),
    Situation("os.abort", python("import os; os.abort()")),
    Situation("alarm", python("import signal; signal.alarm(1); signal.pause()")),
    *(
        Situation(
            f"killed by its own signal {number}",
            python(
                f"""
                import os, signal
                {number} == 13 and signal.signal(13, signal.SIG_DFL)
                os.kill(os.getpid(), {number})
                """
            ),
        )
        for number in (1, 9, 10, 13, 15, 24, 37)
    ),
    Situation("not found", ["no-such-program"], compared=("status",)),
    Situation("not executable", ["./not-executable"], compared=("status",)),
]

STREAMS = [
    Situation("pipe", ["bash", "-c", "seq 1 100000 | tail -1"]),
    Situation("pipefail", ["bash", "-c", "set -o pipefail; false | cat; echo $?; (exit 5) | true"]),
    Situation("broken pipe", ["bash", "-c", "yes | head -3; echo ${PIPESTATUS[@]}"]),
    Situation("input from a pipe", ["wc", "-c"], input=b"x" * 300_000),
    Situation("input at its end", ["bash", "-c", "read line; echo rc $?"]),
    Situation("input closed", ["bash", "-c", "cat; echo rc $?"], before=closing(0)),
    Situation("output closed", python("print('x')"), before=closing(1)),
    Situation("errors closed", python("1/0"), before=closing(2)),
    Situation("all streams closed", python("import os; os._exit(6)"), before=closing(0, 1, 2)),
    Situation("closed streams of a shell", ["bash", "-c", "ls /proc/$$/fd >&2"], before=closing(0, 1)),
    Situation("descriptors", ["ls", "/proc/self/fd"]),
    Situation("descriptors of a child", ["bash", "-c", "ls /proc/self/fd | tr '\\n' ' '"]),
    Situation(
        "descriptor 7",
        ["bash", "-c", 'exec 7>&1; exec "$@"', "bash", "bash", "-c", "echo hi >&7; echo $?"],
        outside=4,
    ),
]

SIGNALS = [
    *(Situation(f"signal {number}", waiting(), sent=(number,)) for number in (1, 2, 3, 12, 14, 15, 24, 40)),
    *(
        Situation(f"signal {number} to the group", waiting(), sent=(number,), to_group=True)
        for number in (1, 2, 3, 9, 12, 15)
    ),
    Situation(
        "SIGWINCH handled", waiting("signal.signal(28, lambda *a: sys.exit(21))"), sent=(signal.SIGWINCH,)
    ),
    Situation(
        "SIGTERM handled",
        waiting("signal.signal(15, lambda *a: (print('bye'), sys.exit(0)))"),
        sent=(signal.SIGTERM,),
    ),
    Situation(
        "SIGTERM ignored",
        waiting("signal.signal(15, signal.SIG_IGN)\nsignal.signal(64, lambda *a: sys.exit(8))"),
        sent=(signal.SIGTERM, signal.SIGRTMAX),
    ),
    Situation(
        "Ctrl-C counted",
        waiting(
            """
            n = []
            signal.signal(2, lambda *a: n.append(1))
            signal.signal(64, lambda *a: (print('ints', len(n)), sys.exit(0)))
            """
        ),
        sent=(signal.SIGINT, signal.SIGRTMAX),
        to_group=True,
    ),
    Situation(
        "nohup",
        ["nohup", *waiting("signal.signal(64, lambda *a: (print('done'), sys.exit(0)))")],
        outside=1,
        sent=(signal.SIGHUP, signal.SIGRTMAX),
        compared=("status", "out"),
    ),
    Situation(
        "stop and continue",
        waiting("signal.signal(64, lambda *a: (print('end'), sys.exit(0)))"),
        sent=(signal.SIGTSTP, signal.SIGCONT, signal.SIGRTMAX),
    ),
    Situation("timeout inside", ["timeout", "0.5", "sleep", "60"]),
    Situation("timeout with SIGKILL inside", ["timeout", "-s", "KILL", "0.5", "sleep", "60"]),
    Situation("timeout outside", ["timeout", "1", "sleep", "60"], outside=2),
    Situation("timeout in front", ["timeout", "--foreground", "1", "sleep", "60"], outside=3),
    Situation("signal masks", status_of("SigBlk", "SigIgn", "SigCgt")),
    Situation("signal masks of a child", ["bash", "-c", "grep -E 'Sig(Blk|Ign|Cgt)' /proc/self/status"]),
    *(
        Situation(f"signal {number} ignored", status_of("SigIgn"), before=ignoring(number))
        for number in (1, 2, 3, 13, 15, 17, 20)
    ),
    Situation(
        "signals blocked",
        status_of("SigBlk"),
        before=lambda: signal.pthread_sigmask(signal.SIG_BLOCK, [2, 10, 15, 40]),
    ),
    Situation("kill of the own group", python("import os, signal; os.killpg(0, signal.SIGTERM)")),
]

PROCESSES = [
    Situation("exec chain", ["sh", "-c", "exec sh -c 'exec sh -c \"exec ./seven\"'"]),
    Situation(
        "Python becomes Python",
        python(
            "import os, sys; os.execv(sys.executable, [sys.executable, '-c', 'import sys; sys.exit(11)'])"
        ),
    ),
    Situation("setsid", ["setsid", "-w", "bash", "-c", "exit 13"]),
    Situation(
        "daemon",
        python(
            """
            import os
            if os.fork(): os._exit(0)
            os.setsid()
            if os.fork(): os._exit(0)
            open('daemon', 'w').write('x')
            """
        ),
        leaves="daemon",
    ),
    Situation(
        "zombies",
        python(
            """
            import os
            for i in range(20):
             if os.fork() == 0: os._exit(i)
            print(sum(os.wait()[1] >> 8 for i in range(20)))
            """
        ),
    ),
    Situation("no children", python("import os\ntry: os.wait()\nexcept ChildProcessError: print('none')")),
    Situation("traced child", ["./traces"]),
    Situation(
        "number of children",
        python("import os; print(len(open(f'/proc/self/task/{os.getpid()}/children').read().split()))"),
    ),
    Situation(
        "leader of group and session",
        python("import os; print(os.getpgrp() == os.getpid(), os.getsid(0) == os.getpid())"),
    ),
    Situation("300 short children", ["bash", "-c", "for i in $(seq 300); do /bin/true; done; echo done"]),
    Situation(
        "300 children at once",
        python(
            """
            import os
            r, w = os.pipe()
            ps = []
            for i in range(300):
             p = os.fork()
             if p == 0:
              os.close(w); os.read(r, 1); os._exit(i == 250)
             ps.append(p)
            os.close(w)
            print(sum(os.waitpid(p, 0)[1] >> 8 for p in ps))
            """
        ),
    ),
    Situation(
        "40 generations",
        python(
            """
            import os
            d = 0
            while d < 40:
             p = os.fork()
             if p: os._exit((os.waitpid(p, 0)[1] >> 8) + 1)
             d += 1
            os._exit(0)
            """
        ),
    ),
    Situation("multiprocessing", [sys.executable, "pool.py"]),
]

SURROUNDINGS = [
    Situation("variables", ["bash", "-c", "env | cut -d= -f1 | sort"]),
    Situation("no variables", ["env", "-i", "/bin/bash", "-c", "exit 14"]),
    Situation("limits", ["bash", "-c", "ulimit -a; ulimit -Ha"]),
    Situation(
        "soft limit of descriptors",
        ["bash", "-c", "ulimit -n; ulimit -Hn"],
        before=limiting(resource.RLIMIT_NOFILE, 100, 1000),
    ),
    Situation("limit of cores", ["bash", "-c", "ulimit -c"], before=limiting(resource.RLIMIT_CORE, 0, 0)),
    Situation(
        "niceness and masks",
        ["bash", "-c", "nice; umask; cat /proc/self/timerslack_ns"],
        before=lambda: os.nice(3),
    ),
    Situation(
        "umask", ["bash", "-c", "umask; touch made; stat -c %a made; rm made"], before=lambda: os.umask(0o077)
    ),
    Situation(
        "OOM score", ["cat", "/proc/self/oom_score_adj"], before=write_to("/proc/self/oom_score_adj", "321")
    ),
    Situation("processors", status_of("Cpus_allowed_list"), before=lambda: os.sched_setaffinity(0, {0})),
    Situation(
        "scheduling",
        python("import os; print(os.sched_getscheduler(0))"),
        before=lambda: os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0)),
    ),
    Situation("privileges", status_of("NoNewPrivs", "Seccomp", "CapEff", "CapInh", "CapBnd")),
    Situation("no new privileges", status_of("NoNewPrivs"), before=control(38, 1)),
    Situation(
        "death signal and subreaper",
        python(
            """
            import ctypes
            l = ctypes.CDLL(None); x = ctypes.c_int()
            for n in (2, 37): l.prctl(n, ctypes.byref(x)); print(x.value)
            """
        ),
    ),
    Situation("dumpable", python("import ctypes; print(ctypes.CDLL(None).prctl(3))")),
    Situation("working directory", ["pwd"]),
    Situation("no terminal", ["bash", "-c", "tty; ps -o tty= -p $$; (exec 3</dev/tty) 2>/dev/null; echo $?"]),
    Situation(
        "arguments",
        [sys.executable, "-c", "import sys; print(sys.argv, sys.orig_argv, sys.flags)", "a b", ""],
    ),
    Situation(
        "sys.path and modules",
        python(
            """
            import sys; print(sys.path, [name for name in sys.modules if 'storm' in name or 'custom' in name])
            """
        ),
    ),
    Situation("isolated Python", [sys.executable, "-I", "-S", "-c", "1/0"]),
    Situation("C locale", ["locale"], variables={"LC_ALL": "C"}),
]

SITUATIONS = [*ENDS, *STREAMS, *SIGNALS, *PROCESSES, *SURROUNDINGS]
