"""The reference names what the sources have: exit codes, kinds of findings, Python names."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from places import ROOT
from stormlog.exit_codes import VERDICT_STATUSES, ExitCode

REFERENCE = ROOT / "docs/reference"


def test_reference_of_the_python_api_is_current() -> None:
    """Also that every public name has a docstring."""
    command = [sys.executable, str(ROOT / "scripts/python_reference.py"), "--check"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_a_public_name_without_a_docstring_is_found(tmp_path: Path) -> None:
    package = tmp_path / "stormlog"
    package.mkdir()
    (package / "__init__.py").write_text('"""Root."""\n_LAZY = {"a": ("f",)}\n__all__ = ["f"]\n')
    (package / "__init__.pyi").write_text("from .a import f as f\n")
    (package / "a.py").write_text(
        '"""A."""\nfrom stormlog._b import Base\n__all__ = ["C", "f"]\n'
        "def f() -> None: ...\n"
        'class C(Base):\n    """C."""\n    def noted(self) -> None: ...\n    def bare(self) -> None: ...\n'
    )
    (package / "_b.py").write_text('class Base:\n    def noted(self) -> None:\n        """Noted."""\n')
    code = (
        "import sys, pathlib; sys.path.insert(0, sys.argv[1]); import public_names as names\n"
        "names.PYTHON = pathlib.Path(sys.argv[2]); print(*names.missing())"
    )
    command = [sys.executable, "-c", code, str(ROOT / "scripts"), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["stormlog.a.C.bare", "stormlog.a.f", "stormlog.f"]


def test_page_of_tasks_names_every_command() -> None:
    page = (ROOT / "docs/commands.md").read_text(encoding="utf-8")
    named = {word for code in re.findall(r"`([^`]+)`", page) for word in re.findall(r"[\w-]+", code)}
    commands = {path.stem for path in (REFERENCE / "commands").glob("*.md")} - {"README"}
    assert len(commands) > 40
    assert commands - named == set(), "not in docs/commands.md"


def test_page_of_exit_codes_lists_those_of_both_languages() -> None:
    page = (REFERENCE / "exit-codes.md").read_text(encoding="utf-8")
    listed = {name: int(code) for code, name in re.findall(r"^\| (\d+) \| `(\w+)` \|", page, re.MULTILINE)}
    assert listed.items() >= {code.name: code.value for code in ExitCode}.items()
    source = (ROOT / "crates/cli/src/exit.rs").read_text(encoding="utf-8")
    native = {int(code) for code in re.findall(r"^    \w+ = (\d+),$", source, re.MULTILINE)}
    assert set(listed.values()) == native
    assert all(f"`{status}`" in page for status in VERDICT_STATUSES)


def test_index_of_rules_lists_every_page_and_every_kind() -> None:
    rules = ROOT / "docs/rules"
    index = (rules / "README.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| \[(\w+)\]\((\w+\.md)\) \| ([^|]+) \|", index, re.MULTILINE)
    assert {page for _, page, _ in rows} == {page.name for page in rules.glob("*.md")} - {"README.md"}
    listed = {kind for _, _, kinds in rows for kind in re.findall(r"`(\w+)`", kinds)}
    sources = [*(ROOT / "crates/analyze/src").rglob("*.rs"), *(ROOT / "crates/torch/src").rglob("*.rs")]
    texts = [path.read_text(encoding="utf-8").partition("#[cfg(test)]")[0] for path in sources]
    everything = "\n".join(texts)
    unknown = {kind for kind in listed if f'"{kind}"' not in everything}
    assert unknown == set(), "listed, but no rule has them"
    # Findings are made by `about(…, id, kind, severity, …)`, by a tuple of those, or as a value.
    made = re.findall(r'(?:"[\w.]+"|\bID|&?id),\s*"(\w+)",\s*(?:Severity::|severity)', everything)
    made += re.findall(r'\bid: [^\n]+\n\s+kind: "(\w+)"', everything)
    assert len(set(made)) > 12
    assert set(made) - listed == set(), "not on docs/rules/README.md"
