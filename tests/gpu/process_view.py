"""With a CUDA GPU: the process view of the terminal UI while a program holds GPU memory.

    python tests/gpu/process_view.py --stormlog PATH

Runs a program that keeps tensors under `stormlog run --heap`, opens its run in `stormlog tui` on a
pseudo-terminal, switches to the memory of the GPU (`m`), goes back in time and opens the flame graph. Prints
each screen. Needs torch, pyte and the command. Exits with 1 when a lane of the device or the line that holds
its memory is missing.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "python" / "helpers"))

PROGRAM = """
import sys, time, torch
kept = []
def keep():
    kept.append(torch.zeros(64 << 20, dtype=torch.uint8, device="cuda"))
for _ in range(8):
    keep()
    time.sleep(0.3)
print("ready", flush=True)
sys.stdin.readline()
"""


def main() -> int:
    from pseudo_terminal import Terminal

    parser = argparse.ArgumentParser()
    parser.add_argument("--stormlog", required=True)
    stormlog = parser.parse_args().stormlog
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder) / "keeps.py"
        program.write_text(PROGRAM)
        runs = Path(folder) / "runs"
        command = [stormlog, "run", "--heap", "--dir", str(runs), "--", sys.executable, str(program)]
        run = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert run.stdout is not None
        while run.stdout.readline().strip() != "ready":
            if run.poll() is not None:
                return 1
        (directory,) = runs.iterdir()
        view = Terminal([stormlog, "tui", str(directory)], columns=130, lines=45)
        try:
            for keys, words in [
                ("", ("cuda:0 allocated", "cuda:0 used", "heap now", "GPU cuda:0")),
                ("m", ("cuda:0 now", "keeps.py:5")),
                ("\x1b[1;2D", ("cuda:0 at ", "keeps.py:5")),
                ("f", ("everything", "keep")),
            ]:
                view.press(keys)
                for word in words:
                    view.wait_for(word)
                sys.stdout.write(view.text() + "\n" + "-" * 130 + "\n")
        finally:
            view.press("q")
            view.close()
            run.communicate("\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
