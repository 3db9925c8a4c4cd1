# mypy: ignore-errors
"""Publishes the stack that called `backward`, for the memory that the engine's own threads ask for meanwhile.

Threads of PyTorch's autograd engine have no Python frames. Every way into the engine passes `run_backward` of
`torch.autograd.Variable._execution_engine`: `Tensor.backward`, `torch.autograd.grad`, checkpoints, code that
calls the engine itself. That object is replaced by one of a derived class, for `isinstance` (torch.compile).

`stormlog run` puts this text before its `sitecustomize`, so it is plain Python of any version, imports only
what torch has imported, and its one function has a name that the heap recording leaves out (injected.rs of
the hook).
"""


def _stormlog_install_backward(enter=None, leave=None):
    """Call `enter()` before each backward pass and `leave(token)` after it, in the thread that asks for it.

    By default those of the preloaded library; without one nothing changes. A token of 0 is not given back.
    Once for a process; PyTorch must be imported.
    """
    import ctypes
    import functools
    import sys

    if enter is None:
        # The interpreter stays locked: the calls walk the stack of this thread.
        library = ctypes.PyDLL(None)
        if not hasattr(library, "stormlog_gpu_enter_backward"):
            return
        enter, leave = library.stormlog_gpu_enter_backward, library.stormlog_gpu_leave_backward
        leave.restype = None
    torch = sys.modules["torch"]
    variable = torch.autograd.Variable
    engine = variable._execution_engine
    if hasattr(engine, "publishes_stacks"):
        return
    # Of the backward pass that this thread works for; -1 for none.
    current_task = getattr(torch._C, "_current_graph_task_id", None)

    class Call(functools.partial):
        """The engine's own function until its call is over; no frame of ours is below it when it raises."""

        def __del__(self):
            if self.token:
                leave(self.token)

    class Engine(type(engine)):
        """PyTorch's engine, which is one for the process; this is another handle to it."""

        publishes_stacks = True

        @property
        def run_backward(self):
            run = super().run_backward
            # A backward pass inside another one, as of a checkpoint, is for the caller of the outer one.
            if current_task is not None and current_task() != -1:
                return run
            call = Call(run)
            call.token = 0
            call.token = enter()
            return call if call.token else run

    variable._execution_engine = Engine()
