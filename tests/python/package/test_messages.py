"""The catalogue of user-facing texts is current, complete in kind, and keeps to the rules of the language.

Needs no build: the texts are extracted from the sources by `scripts/messages`.
"""

from __future__ import annotations

import difflib
import os
import re
import textwrap

import messages
import pytest
from messages import pages, python, rust

# Words with no use in a message of ours; what to write instead. Texts of 0.4.3 are left out.
BANNED = {
    r"(?<!there )\b(is|are|was) no (?!longer|more)": "is not a …",
    r"\b(told|tells|said)\b": "reported, printed, recorded, shows",
    r"\b(who|whom|whoever|nobody|somebody)\b": "the caller, the process that …, no one only for people",
    r"\b(lies|lay|stands|stood)\b": "is, was, is stored",
    r"\b(goes|go|went|going) on\b": "continues",
    r"\bso (many|much|long)\b": "a noun: the number of …",
    r"\bmend(s|ed)?\b": "fix",
    r"\basked for\b": "requested",
    r"\bis meant\b|\bare meant\b": "is intended; or name the thing",
    r"\bended well\b|\bwell, after\b": "exited 0",
    r"\bread on\b": "read error at byte N",
    r"\bwant of\b": "lack of, out of",
    r"\banew\b": "again",
    r"\bsay (so|why|nothing|more)\b": "report, give the reason, suppress",
    r"\bno folder\b|\bfolder\b": "directory",
    r"\bhold \w+ against\b|\blook who\b": "fail if …; find out what …",
}


def test_catalogue_is_current() -> None:
    now = messages.catalogue()
    if os.environ.get("STORMLOG_BLESS"):
        messages.CATALOGUE.write_text(now, encoding="utf-8")
    before = messages.CATALOGUE.read_text(encoding="utf-8") if messages.CATALOGUE.exists() else ""
    changes = list(
        difflib.unified_diff(before.splitlines(), now.splitlines(), "catalogue", "sources", n=0, lineterm="")
    )
    assert not changes, "\n".join(
        [
            "User-facing texts changed. Read the lines below as a user, then write the catalogue again:",
            "  STORMLOG_BLESS=1 .venv/bin/python -m pytest tests/python/package/test_messages.py",
            *changes[:60],
        ]
    )


def test_texts_of_0_4_3_are_kept() -> None:
    ours = {messages.shape(text) for path in messages.files() for _, text in messages.of_file(path)}
    lost = [text for text in messages.read_compatible() if text not in ours]
    assert not lost, f"0.4.3 prints these; put them back, or take them off {messages.COMPATIBLE.name}: {lost}"


def lines() -> list[tuple[str, str, str]]:
    """File, kind and text of each line of the catalogue that is ours to word."""
    found, file = list[tuple[str, str, str]](), ""
    for line in messages.catalogue().splitlines():
        if line.startswith("## "):
            file = line[3:]
        elif line and not line.startswith("#") and "[0.4.3] " not in line:
            found.append((file, line[:8].strip(), line[9:]))
    return found


def test_no_text_has_a_banned_word() -> None:
    wrong = [
        f"{file}: {text}\n    /{pattern}/ -> {instead}"
        for file, kind, text in lines()
        for pattern, instead in BANNED.items()
        if kind != "value" and re.search(pattern, re.sub(r"\{[^{}]*\}", "{}", text), re.IGNORECASE)
    ]
    assert not wrong, "\n".join(wrong)


def test_help_lines_are_short_and_have_no_full_stop() -> None:
    helps = [(file, text) for file, kind, text in lines() if kind == "help" and file.endswith(".rs")]
    assert len(helps) > 300
    long = [f"{file}: {text}" for file, text in helps if len(text) > 80]
    assert not long, "over 80 characters; put the rest into a second paragraph:\n" + "\n".join(long)
    stopped = [f"{file}: {text}" for file, text in helps if re.search(r"[^.]\.$|\. [A-Z]", text)]
    assert not stopped, "more than one sentence, or a full stop:\n" + "\n".join(stopped)


def test_each_kind_of_text_is_in_the_catalogue() -> None:
    page = messages.catalogue()
    for line in (
        "help     Run a program and keep the evidence of how it ends",
        "value    SECONDS",
        "heading  Heap recording",
        "error    process {pid} has exited",
        "text     find out what sent SIGTERM: a scheduler, systemd-oomd, earlyoom",
        "text     [0.4.3] Tracking started",
        "warning  The OOM bundle could not be written: %s",
        "page     Hide libraries",
    ):
        assert f"\n{line}\n" in page, line


def test_rust_texts_are_found_and_code_is_not() -> None:
    source = textwrap.dedent(
        r"""
        //! Of the module: not shown.
        /// Not clap's: not shown.
        pub fn code<'a>(c: char) -> &'a str { if c == '"' { "two \
            words" } else { r#"a "raw" text"# } }
        /* a "comment that is long" /* nested "too so" */ */
        /// Record a program
        ///
        /// With its
        /// children.
        #[derive(Debug, clap::Args)]
        pub(crate) struct Run {
            /// Seconds between two samples
            #[arg(long, value_name = "SECONDS", help_heading = "Old runs", default_value = "not this one")]
            interval: f64,
        }
        #[derive(thiserror::Error)]
        enum Wrong {
            #[error("{path}: not a directory", path = .0.display())]
            Place(PathBuf),
        }
        fn more() {
            let _ = map.get("key_name").expect("never shown at all");
            assert!(true, "of a failed assertion");
            if line.starts_with("text of others") { panic!("of a bug only") }
            let sql = "SELECT a FROM b where c";
            let path = "/proc/self/status";
            println!("{:>4} {}", 1, 2);
            eprintln!("stormlog: cannot write {}\n", b"bytes of text".len());
        }
        #[cfg(test)]
        mod tests { #[test] fn shown() { assert_eq!("a text", "of a test"); let _ = "in a test"; } }
        fn last() -> &'static str { "after the tests" }
        """
    )
    assert list(rust.messages(source)) == [
        ("text", "two words"),
        ("text", 'a "raw" text'),
        ("help", "Record a program"),
        ("details", "With its children."),
        ("value", "SECONDS"),
        ("heading", "Old runs"),
        ("help", "Seconds between two samples"),
        ("error", "{path}: not a directory"),
        ("text", "stormlog: cannot write {}\n"),
        ("text", "bytes of text"),
        ("text", "after the tests"),
    ]


def test_modules_for_tests_are_known() -> None:
    assert rust.test_modules(
        "#[cfg(test)]\nmod tests;\nmod code;\n#[cfg(test)]\npub(crate) mod fixtures;"
    ) == {
        "tests",
        "fixtures",
    }


def test_python_texts_are_found_and_code_is_not() -> None:
    source = textwrap.dedent(
        '''
        """Of the module: not shown."""
        def run(path: "a name of a type") -> None:
            """Not shown."""
            assert path, "of a failed assertion"
            warnings.warn(f"{path} is not " "a file", stacklevel=2)
            parser.add_argument("--top", help="Rows to print", metavar="N")
            print("one line" + " and more")
            raise ValueError(f"unknown mode {path.name!r}: {1 + 1} given")
        '''
    )
    assert sorted(python.messages(source)) == [
        ("error", "unknown mode {path.name}: {…} given"),
        ("help", "Rows to print"),
        ("text", "one line and more"),
        ("value", "N"),
        ("warning", "{path} is not a file"),
    ]


@pytest.mark.parametrize(
    ("reader", "source", "texts"),
    [
        (
            pages.html,
            '<p title="Dark or light">Press <kbd>?</kbd> for help</p><script>let x = "of it"</script>',
            ["Dark or light", "Press ? for help"],
        ),
        (
            pages.script,
            'const b = /"/; say(`${n} of ${one ? "one row" : "all rows"} shown`); // "not this one"',
            ["{…} of {…} shown", "one row", "all rows"],
        ),
        (
            pages.rules,
            "  - alert: Name\n    summary: 'A process died'\n    expr: a > b\n",
            ["A process died"],
        ),
    ],
)
def test_page_texts_are_found_and_code_is_not(reader: object, source: str, texts: list[str]) -> None:
    assert callable(reader)
    assert [text for _, text in reader(source)] == texts
