"""Leaves secrets out of exception messages before they are written: put before `sitecustomize.py` when that is stored.

The list of what is a secret is inserted below; it is the one of the crate `scrub`. Must import nothing and allocate
little: it runs when memory is short.
"""


def _scrubber():
    """A function that leaves secrets out of a text."""
    # tables of secrets

    def is_secret_name(name):
        name = name.strip("-").replace("-", "_")
        words, word, before = [], "", ""
        for character in name:
            if not character.isalnum() or (before.islower() and character.isupper()):
                words.append(word)
                word = ""
            if character.isalnum():
                word += character
            before = character
        words = [w.upper() for w in [*words, word] if w]
        name = name.upper()
        if not words or name in _HARMLESS or len(name) > 256:
            return False
        last = words[-1]
        return (
            name in _WHOLE
            or name.endswith(("CONNECTION_STRING", "CONNECTIONSTRING"))
            or any(part in w for part in _ANYWHERE for w in words)
            or any(w in _WORDS for w in words)
            or last in _LAST
            or (last not in _HARMLESS and any(last.endswith(end) and last != end for end in _ENDINGS))
        )

    def is_secret_word(word):
        for start in _STARTS:
            rest = word[len(start) :]
            is_random = len(rest) >= _LONG or rest != rest.lower() or any(c.isdigit() for c in rest)
            if word.startswith(start) and len(rest) >= _SHORTEST and is_random:
                return True
        if word.startswith("eyJ") and word.count(".") >= 1 and len(word) > 8:
            return True
        return (
            len(word) == 40
            and word.lower() != word != word.upper()
            and word.replace("/", "").replace("+", "").isalnum()
        )

    def scrubbed(text):
        """A text without its secrets, word by word: a word that may hold one is left out from there on."""
        before, found, _ = text.partition(_KEY_BLOCK)
        words, takes_next, quote = [], False, ""
        for word in before.split(" "):
            bare = word.strip("\"'()[]{}<>,;.:=")
            if quote:
                is_end = word.rstrip(",;)]}.").endswith(quote)
                quote = "" if is_end else quote
                continue
            if takes_next and bare and bare.upper() not in _SCHEMES:
                first = word.lstrip("=:([{")[:1]
                if first in ("'", '"') and not word.rstrip(",;)]}.")[1:].endswith(first):
                    quote = first
                words.append(_REDACTED)
                takes_next = False
                continue
            takes_next = takes_next and (not bare or bare.upper() in _SCHEMES)
            words.append(scrubbed_word(word))
            if words[-1] != word and words[-1].endswith("=" + _REDACTED):
                value = word[len(words[-1]) - len(_REDACTED) :]
                first = value.lstrip("=:")[:1]
                if first in ("'", '"') and not value.rstrip(",;)]}.")[1:].endswith(first):
                    quote = first
            takes_next = (
                takes_next
                or bare.upper() in _SCHEMES[:2]
                or (word.endswith((":", "=", '":', "':")) and is_secret_name(bare))
                or (word == bare and is_secret_name(bare) and bare.startswith("--"))
            )
        if found:
            words.append(_REDACTED)
        return " ".join(words)

    def scrubbed_word(word):
        scheme, found, rest = word.partition("://")
        if found and ("@" in rest or _SECRET_PATH in rest):
            return scheme + found + _REDACTED
        name = ""
        for at, character in enumerate(word):
            if character in "=:" and name and at + 1 < len(word) and is_secret_name(name):
                return word[:at] + "=" + _REDACTED
            name = name + character if character.isalnum() or character in "_-" else ""
        token = ""
        for character in word + " ":
            if character.isalnum() or character in "_-.+/=":
                token += character
            else:
                if any(
                    is_secret_word(part)
                    for part in (token.strip("."), token.rpartition("=")[2], token.rpartition("/")[2])
                ):
                    return _REDACTED
                token = ""
        return word

    return scrubbed
