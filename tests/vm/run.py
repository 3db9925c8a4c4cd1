"""The kernel's own OOM killer in a virtual machine: run.py STORMLOG [DIRECTORY].

Boots Debian's kernel under emulation with 256 MiB, lets real programs run into the end of its memory, and
checks what `stormlog oom show` says. Installs what it needs where it may (root, apt-get), and ends by itself.
Where it cannot run, it prints why and succeeds.
"""

from __future__ import annotations

import gzip
import json
import os
import platform
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
MEMORY_MIB = 256
LONGEST_SECONDS = 300
# Downloads; a mirror that does not answer must not hold up a build.
LONGEST_INSTALL_SECONDS = 600
TOOLS = {"qemu-system-x86_64": "qemu-system-x86", "busybox": "busybox-static", "cpio": "cpio"}
KERNEL = "linux-image-cloud-amd64"
# Cases in which `memory.oom.group` has the supervisor killed with its program.
GROUPS = ("group", "container", "pod")


def sh(*words: str | Path, cwd: Path | None = None, seconds: float = 120) -> str:
    """What a command prints; ends all when it fails or takes too long."""
    done = subprocess.run(
        words,
        check=True,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
        cwd=cwd,
        timeout=seconds,
    )
    return done.stdout


def apt(*words: str, cwd: Path | None = None) -> None:
    """One call of apt-get, which waits for another's lock but not for ever."""
    sh("apt-get", "-qq", "-o", "DPkg::Lock::Timeout=300", *words, cwd=cwd, seconds=LONGEST_INSTALL_SECONDS)


def missing_tools() -> list[str]:
    """The packages of the programs that are not there."""
    return [package for tool, package in TOOLS.items() if shutil.which(tool) is None]


def reason_to_skip(place: Path) -> str | None:
    """Why the machine cannot be run here at all; None where it can."""
    if platform.machine() != "x86_64":
        return f"its kernel is for x86_64, this machine is {platform.machine()}"
    has_kernel = any(place.glob("kernel/boot/vmlinuz-*"))
    if not missing_tools() and has_kernel:
        return None
    if shutil.which("apt-get") is None:
        return f"there is no apt-get to install {' '.join(TOOLS.values())} and a kernel with"
    if missing_tools() and os.getuid() != 0:
        return f"only root can install {' '.join(missing_tools())}"
    return None


def install_tools() -> None:
    """What is missing."""
    if missing_tools():
        apt("update")
        apt("install", "--yes", "--no-install-recommends", *missing_tools())


def kernel_package() -> str | None:
    """The package of the newest kernel that apt knows."""
    depends = sh("apt-cache", "depends", KERNEL)
    found = re.search(r"Depends: (linux-image-\S+)", depends)
    return found[1] if found else None


def kernel(place: Path) -> Path:
    """Debian's kernel, unpacked and not installed."""
    found = sorted(place.glob("kernel/boot/vmlinuz-*"))
    if not found:
        package = kernel_package()
        if package is None:
            apt("update")
            package = kernel_package()
        if package is None:
            sys.exit(f"test-vm: this apt knows no {KERNEL}")
        apt("download", package, cwd=place)
        (archive,) = place.glob("linux-image-*.deb")
        sh("dpkg-deb", "-x", archive.resolve(), (place / "kernel").resolve())
        archive.unlink()
        found = sorted(place.glob("kernel/boot/vmlinuz-*"))
    return found[-1]


def initramfs(place: Path, stormlog: Path) -> Path:
    """busybox, `stormlog` with its libraries, the program that takes all memory, and `init`."""
    root = place / "root"
    shutil.rmtree(root, ignore_errors=True)
    for directory in ("bin", "etc"):
        (root / directory).mkdir(parents=True)
    busybox = shutil.which("busybox")
    assert busybox is not None
    shutil.copy(busybox, root / "bin/busybox")
    sh("strip", "-o", root / "bin/stormlog", stormlog)
    sh("cc", "-O1", "-static", "-o", root / "bin/hog", HERE / "hog.c")
    for library in re.findall(r"(/\S+) \(0x", sh("ldd", stormlog)):
        (root / library[1:]).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(library, root / library[1:])
    shutil.copy(HERE / "init", root / "init")
    (root / "init").chmod(0o755)
    names = sh("find", ".", cwd=root)
    packed = subprocess.run(
        ["cpio", "--quiet", "-o", "-H", "newc"],
        input=names.encode(),
        stdout=subprocess.PIPE,
        cwd=root,
        check=True,
    )
    image = place / "initramfs.gz"
    image.write_bytes(gzip.compress(packed.stdout, 1))
    return image


def boot(place: Path, image: Path) -> str:
    """What the machine printed until it switched itself off."""
    arguments = "console=ttyS0 quiet loglevel=0 panic=-1 vm.panic_on_oom=0"
    words = ["qemu-system-x86_64", "-accel", "tcg", "-cpu", "max", "-m", str(MEMORY_MIB), "-nic", "none"]
    words += ["-display", "none", "-serial", "stdio", "-no-reboot"]
    words += ["-kernel", str(kernel(place)), "-initrd", str(image), "-append", arguments]
    try:
        done = subprocess.run(
            words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, timeout=LONGEST_SECONDS, check=False
        )
    except subprocess.TimeoutExpired as late:
        said = (late.stdout or b"").decode(errors="replace")
        sys.exit(f"test-vm: the machine was not done after {LONGEST_SECONDS} s; it said:\n{said}")
    return done.stdout.decode(errors="replace").replace("\r", "")


def answers(said: str) -> dict[str, dict[str, Any]]:
    """The bundle of each case: that of the one process of it that was killed.

    Others may have left bundles too, in any order and within the same second: the parent of `worker` does.
    """
    if "@@ done" not in said:
        sys.exit(f"test-vm: the machine did not come to the end; it said:\n{said}")
    found: dict[str, dict[str, Any]] = {}
    for case, text in re.findall(r"^@@ (\w+)\n(.*?)^@@ end$", said, re.MULTILINE | re.DOTALL):
        try:
            answer = json.loads(text)
        except ValueError:
            sys.exit(f"test-vm: {case}: {text!r} is not an answer; the machine said:\n{said}")
        if answer["signal"] != 9:
            continue
        if case in found:
            sys.exit(f"test-vm: {case}: two processes were killed, one was meant to be; it said:\n{said}")
        found[case] = answer
    return found


def check_messages(said: str) -> list[str]:
    """What is wrong with the termination messages that were written ahead of the kills of whole groups."""
    wrong = []
    texts = dict(re.findall(r"^@@message (\w+)\n(.*?)^@@message end$", said, re.MULTILINE | re.DOTALL))
    for case in GROUPS:
        text = texts.get(case, "")
        first = text.partition("\n")[0]
        if not re.search(r"hog \(pid \d+\) used [\d.]+ MiB of 64.00 MiB \(\d+ %\)", first):
            wrong.append(f"{case}: the message does not begin with the use of the limit: {first!r}")
        for part in ("  held by ", "  limit     64.00 MiB", f"  evidence  stormlog analyze /tmp/{case}/"):
            if part not in text:
                wrong.append(f"{case}: the message has no {part.strip()!r}: {text!r}")
    return wrong


def check(found: dict[str, dict[str, Any]]) -> list[str]:
    """What is not as it must be."""
    wrong = []

    def expect(case: str, key: str, wanted: object) -> None:
        if found.get(case, {}).get(key) != wanted:
            wrong.append(f"{case}: {key} is {found.get(case, {}).get(key)!r}, not {wanted!r}")

    for case in ("global", "worker", "restricted", "counted"):
        expect(case, "cause", "global_oom_kill")
        expect(case, "signal", 9)
        total = found.get(case, {}).get("limit_bytes") or 0
        peak = found.get(case, {}).get("peak_rss_bytes") or 0
        if not MEMORY_MIB << 19 < total <= MEMORY_MIB << 20:
            wrong.append(f"{case}: limit_bytes is {total}, which is not this machine's memory")
        if peak < total // 4:
            wrong.append(f"{case}: peak_rss_bytes is {peak}, less than a quarter of the machine's {total}")
    for case in ("cgroup", "moved"):
        expect(case, "cause", "cgroup_oom_kill")
        expect(case, "limit_bytes", 48 << 20)
    expect("kill", "cause", "sigkill")
    for case in GROUPS:
        expect(case, "cause", "cgroup_oom_kill")
        expect(case, "limit_bytes", 64 << 20)
        confidence = found.get(case, {}).get("evidence", {}).get("confidence") or 0
        is_sure = confidence > 0.9
        if confidence >= 1 or is_sure == (case == "pod"):
            wrong.append(f"{case}: confidence is {confidence}")
    for case, answer in found.items():
        if answer["session_status"] not in ("interrupted", "incomplete"):
            wrong.append(f"{case}: session_status is {answer['session_status']!r}")
        if not answer["last_event_timestamp_ns"]:
            wrong.append(f"{case}: no last event")
    return wrong


def main() -> None:
    """Installs, boots, checks."""
    stormlog = Path(sys.argv[1])
    place = Path(sys.argv[2]) if len(sys.argv) > 2 else stormlog.parent / "vm"
    place.mkdir(parents=True, exist_ok=True)
    skipped = reason_to_skip(place)
    if skipped:
        sys.stdout.write(f"test-vm: skipped: {skipped}\n")
        return
    install_tools()
    said = boot(place, initramfs(place, stormlog))
    found = answers(said)
    for case, answer in found.items():
        sys.stdout.write(f"test-vm: {case}: {answer['cause']}: {answer['evidence']['verdict']}\n")
    wrong = check(found) + check_messages(said)
    if wrong:
        sys.exit("\n".join([said, *("test-vm: " + line for line in wrong)]))
    sys.stdout.write(f"test-vm: {len(found)} deaths under a real kernel, all named rightly\n")


main()
