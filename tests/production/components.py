"""Real components for the tests here: packages of the machine's own package manager, unpacked into a cache.

Nothing is installed on the host: apt works in a directory of its own, against the mirror that the machine
is configured for, and packages are unpacked with `dpkg -x`. A test whose component cannot be had is skipped
with the reason. `STORMLOG_PRODUCTION` names the cache, so that a clean clone does not fetch everything again.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
APT_CONF = """
Dir::Etc "{0}/etc"; Dir::Cache "{0}/cache";
Dir::State "{0}/state"; Dir::State::lists "{0}/lists"; Dir::State::status "{0}/state/status";
APT::Architecture "{1}"; APT::Architectures {{ "{1}"; }};
Acquire::Languages "none"; Acquire::Check-Valid-Until "false"; Acquire::Retries "2";
APT::Sandbox::User "root";
"""
IN_CHROOT = (
    'Acquire::Check-Valid-Until "false"; APT::Install-Recommends "false"; APT::Sandbox::User "root";\n'
)


# Prometheus 3, Alertmanager and VictoriaMetrics: bookworm's are too old. 101 MiB to fetch.
MONITORING = ("prometheus", "promtool", "prometheus-alertmanager", "victoria-metrics")


class Missing(Exception):
    """A component that cannot be had on this machine; the text is the reason."""


def cache() -> Path:
    """The directory that keeps components from one run to the next."""
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    place = Path(os.environ.get("STORMLOG_PRODUCTION") or home / "stormlog-production")
    place.mkdir(parents=True, exist_ok=True)
    return place


def unpacked(suite: str, *packages: str) -> Path:
    """The root below which these packages of a Debian suite are unpacked, without their dependencies."""
    with _skips(packages):
        return _kept("root", suite, packages, _unpack)


def pprof() -> Path:
    """The program that `go tool pprof` starts, alone: Go itself is 330 MB unpacked."""

    def unpack(suite: str, packages: tuple[str, ...], into: Path) -> None:
        _unpack(suite, packages, into)
        (found,) = into.glob("usr/lib/go-*/pkg/tool/*/pprof")
        found.rename(into / "pprof")
        shutil.rmtree(into / "usr")

    with _skips(("golang-1.19-go",)):
        return _kept("pprof", "bookworm", ("golang-1.19-go",), unpack) / "pprof"


def system(suite: str, *packages: str) -> Path:
    """A small Debian of its own to `chroot` into, with these packages installed and no service started."""
    with _skips(packages):
        return _kept("system", suite, packages, _bootstrap)


def python_with(*requirements: str) -> Path:
    """An interpreter with these packages of the configured index, and without ours."""

    def make(into: Path) -> None:
        _run([sys.executable, "-m", "venv", str(into)])
        pip = [str(into / "bin/python"), "-m", "pip", "install", "-q", "--no-cache-dir", *requirements]
        # pyspark is 430 MB in one archive that has to be built.
        _run(pip, minutes=20)

    key = hashlib.sha256(" ".join([sys.version, *requirements]).encode()).hexdigest()[:8]
    # Not renamed into place: the commands of an environment have its path in them.
    place = cache() / f"python-{key}"
    with _skips(requirements), (cache() / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (place / ".whole").exists():
            shutil.rmtree(place, ignore_errors=True)
            make(place)
            (place / ".whole").touch()
    return place / "bin/python"


def into_page_cache(python: Path) -> None:
    """Reads the files of an interpreter's environment: their pages are charged to the cgroup of the tests."""
    for place in python.parents[1].rglob("*"):
        if place.is_file() and not place.is_symlink():
            with place.open("rb") as file:
                while file.read(1 << 20):
                    pass


def frameworks_python() -> Path:
    """The interpreter of `make test-frameworks`, which has the real PyTorch and our package."""
    root = Path(__file__).parents[2]
    for place in (os.environ.get("STORMLOG_FRAMEWORKS") or root, root):
        for found in sorted(Path(place).glob(".venv-frameworks-*/bin/python")):
            return found
    pytest.skip("no environment with the frameworks; `make test-frameworks` makes one")


@contextlib.contextmanager
def _skips(packages: tuple[str, ...]) -> Iterator[None]:
    try:
        yield
    except Missing as error:
        pytest.skip(f"{', '.join(packages)}: {error}")


def _kept(
    kind: str, suite: str, packages: tuple[str, ...], make: Callable[[str, tuple[str, ...], Path], None]
) -> Path:
    """What was made before, or made now; one process at a time, and whole or not at all."""
    if os.getuid() != 0 or not shutil.which("apt-get") or not KEYRING.exists():
        raise Missing("needs root and Debian's apt-get to fetch it")
    key = hashlib.sha256(" ".join(sorted(packages)).encode()).hexdigest()[:8]
    place = cache() / f"{kind}-{suite}-{packages[0]}-{key}"
    with (cache() / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not place.exists():
            draft = place.with_name(f"{place.name}.new")
            shutil.rmtree(draft, ignore_errors=True)
            draft.mkdir()
            try:
                make(suite, packages, draft)
                draft.rename(place)
            finally:
                shutil.rmtree(draft, ignore_errors=True)
    return place


def _unpack(suite: str, packages: tuple[str, ...], into: Path) -> None:
    # In a directory of their own, and removed at once: they are as large again as what is in them.
    archives = into.with_name(f"{into.name}.deb")
    shutil.rmtree(archives, ignore_errors=True)
    archives.mkdir()
    try:
        _run(["apt-get", "-qq", "download", *packages], cwd=archives, env=_apt(suite))
        for archive in sorted(archives.glob("*.deb")):
            _run(["dpkg", "-x", str(archive), str(into)])
    finally:
        shutil.rmtree(archives, ignore_errors=True)


def _bootstrap(suite: str, packages: tuple[str, ...], into: Path) -> None:
    tool = cache() / "debootstrap"
    if not tool.exists():
        _unpack("bookworm", ("debootstrap",), tool)
    words = [
        "--variant=minbase",
        f"--keyring={KEYRING}",
        "--include=ca-certificates",
        suite,
        str(into),
        _mirror(),
    ]
    scripts = tool / "usr/share/debootstrap"
    _run([str(tool / "usr/sbin/debootstrap"), *words], env={**os.environ, "DEBOOTSTRAP_DIR": str(scripts)})
    (into / "etc/apt/apt.conf.d/99stormlog").write_text(IN_CHROOT)
    policy = into / "usr/sbin/policy-rc.d"
    policy.write_text("#!/bin/sh\nexit 101\n")
    policy.chmod(0o755)
    quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C"}
    _run(["chroot", str(into), "apt-get", "-qq", "-y", "install", *packages], env=quiet)
    _run(["chroot", str(into), "apt-get", "clean"], env=quiet)


def _mirror() -> str:
    """The mirror that this machine is configured for."""
    form = ["--format", "$(REPO_URI)", "Created-By: Packages"]
    for line in _run(["apt-get", "indextargets", *form]).split():
        if line.rstrip("/").endswith("/debian"):
            return line
    raise Missing("apt is configured for no mirror of Debian")


def _apt(suite: str) -> dict[str, str]:
    """The environment in which apt-get knows this suite, and only this."""
    place = cache() / f"apt-{suite}"
    conf = place / "apt.conf"
    if not conf.exists():
        shutil.rmtree(place, ignore_errors=True)
        for name in ("etc/apt.conf.d", "etc/preferences.d", "etc/sources.list.d", "lists/partial", "state"):
            (place / name).mkdir(parents=True)
        (place / "cache/archives/partial").mkdir(parents=True)
        (place / "state/status").touch()
        (place / "etc/sources.list").write_text(f"deb [signed-by={KEYRING}] {_mirror()} {suite} main\n")
        draft = place / "draft.conf"
        draft.write_text(APT_CONF.format(place, _run(["dpkg", "--print-architecture"]).strip()))
        _run(["apt-get", "-qq", "update"], env={**os.environ, "APT_CONFIG": str(draft)})
        draft.rename(conf)
    return {**os.environ, "APT_CONFIG": str(conf)}


def _run(
    words: list[str], cwd: Path | None = None, env: dict[str, str] | None = None, minutes: int = 5
) -> str:
    try:
        done = subprocess.run(
            words, cwd=cwd, env=env, capture_output=True, text=True, timeout=60 * minutes, check=False
        )
    except subprocess.TimeoutExpired:
        raise Missing(f"{words[0]} took longer than {minutes} minutes") from None
    if done.returncode:
        last = (done.stderr.strip() or done.stdout.strip() or "no message").splitlines()[-1]
        raise Missing(f"{words[0]} failed: {last}")
    return done.stdout
