"""Scrubs texts with whatever stormlog is installed, and prints what came out as JSON.

Run as a script: `python peer_scrub.py`. Only names that both packages have are used here.
"""

from __future__ import annotations

import base64
import json
import sys
import urllib.parse
from typing import Any

B = "\\"
TEXTS = [
    "",
    "plain text, nothing here",
    "password=hunter2secret rest",
    "error: password=abc123;next=1",
    "api_key: 'quoted value' tail",
    '{"token": "abc", "n": 5, "nested": {"secret": [1,2,{"a":"b"}], "x": 1}}',
    "{'api-key': 'abc def', 'b': 2}",
    "Authorization: Bearer abcdefghijkl\nnext line",
    "proxy-authorization=Basic Zm9vOmJhcg==",
    "use the basic parameters here",
    "Bearer ABCDEFGH12345",
    "https://user:pa@ss@host/path?a=1&b=2#frag tail",
    'see http://host/x?sig=abc" and',
    "ftp://u@h",
    "postgres://me:s3cret@db:5432/x",
    "a://b",
    "sk-abcdefghijklmnopqrstuvwx",
    "hf_ABCDEFGHIJKLMNOPQRSTUVWX yes",
    "AKIAABCDEFGHIJKLMNOP",
    "ghp_" + "a" * 36,
    "github_pat_" + "b" * 30,
    "xoxb-1234567890-abc",
    "eyJhbGciOiJI.eyJzdWIiOiIx.SflKxwRJSMeK tail",
    "xeyJhbGciOiJIUzI1.eyJzdWIiOiIxMjM0.SflKxwRJSMeKKF",
    "-----BEGIN RSA PRIVATE KEY-----\nabc\n-----END RSA PRIVATE KEY----- after",
    "-----BEGIN PRIVATE KEY-----\nabc never ends",
    "run --api-key abc --verbose x",
    "run --token --other",
    "['vllm', '--api-key', 'value', '--x']",
    "API_KEY abcdef tail",
    "the token expired today",
    "MY-TOKEN abc",
    '"password": 12345, "a": 1',
    '{"password": null}',
    "password={noop}secret tail",
    "password=[a, b] tail",
    "password=password=password=x",
    "key.key.key.=v",
    '{"pass' + B + 'u0077ord": "x"}',
    '"{' + B + '"token' + B + '": ' + B + '"abc' + B + '", ' + B + '"n' + B + '": 1}"',
    'token="unclosed value',
    "token='it" + B + "'s' tail",
    "pwd:   spaced",
    "cookie: a=b; c=d",
    "session_id=abc, rank=1",
    "user=me&token=abc&x=1",
    "äöü token=ß",
    "lone \ud800 token=a\ud800b",
    "http://a?x=1,http://b?token=zzz",
    "mykey\n=\nvalue",
    "(--password x)",
    "{token:abc}",
    "x" * 50 + " token=" + "y" * 50,
]
ODD = 'a b"c' + B + "de\u20acfg\U0001f600x"
SPELT = [
    ODD,
    urllib.parse.quote(ODD),
    urllib.parse.quote(ODD).lower(),
    urllib.parse.quote_plus(ODD),
    json.dumps(ODD),
    json.dumps(ODD, ensure_ascii=False),
    base64.b64encode(ODD.encode()).decode(),
    base64.urlsafe_b64encode(ODD.encode()).decode().rstrip("="),
    "hunter2-long/secret hunter2-long/secret",
    "hunter2-longhunter2-long/secret",
    "hunter2-long%2Fsecret",
    "hunter2-long" + B + "/secret",
    "xx?yyzzww",
    "nothing",
]
SPANS: list[list[tuple[int, int]]] = [
    [],
    [(1, 3)],
    [(1, 3), (3, 5)],
    [(1, 6), (2, 3)],
    [(5, 9), (0, 2)],
    [(4, 10)],
    [(3, 5), (5, 7)],
]
URLS = [None, "", "http://u:p@h:80/p?q=1#f", "https://[::1]:9/x", "http://h", "x", "http://tok@h", "http://:pw@h",
        "http://us%20er:p%40w@h/?a=b&c=&d=e+f"]  # fmt: skip


def outcomes() -> dict[str, Any]:
    from stormlog import scrub

    known = scrub.KnownSecrets(["hunter2-long/secret", None, "short", ODD, "xx\ud800yyzzww"])
    cuts = (None, 0, 5, 12, 20, 40)
    try:
        scrub.truncate_utf8("a", -1)
    except ValueError as error:
        refused = str(error)
    return {
        **{text: [scrub.scrub_text(text, max_bytes=cut) for cut in cuts] for text in TEXTS},
        "short": known.skipped_short,
        "known": [
            [
                known.redact(text),
                known.found_in(text),
                sorted(known.spans(text)),
                scrub.scrub_text(text, secrets=known),
            ]
            for text in SPELT
        ],
        "spans": [
            scrub.replace_spans("abcdefghij", spans, limit=limit)
            for spans in SPANS
            for limit in (None, 0, 4, 5, 20)
        ],
        "urls": [[scrub.redact_url(url), scrub.redact_url(url, origin_only=True)] for url in URLS],
        "in urls": [scrub.url_secrets(url) for url in URLS],
        "truncated": [scrub.truncate_utf8("a\u00e9\U0001f600\ud800z", size) for size in range(10)],
        "refused": refused,
        "names": [
            scrub.is_forbidden_key_name(name) for name in ("API_KEY", "passwd", "rank", "Session", "x")
        ],
        "constants": [
            scrub.REDACTED,
            scrub.MIN_SECRET_LENGTH,
            scrub.INPUT_MARGIN_CHARS,
            *scrub.SECRET_KEY_WORDS,
        ],
    }


if __name__ == "__main__":
    # The script's own directory holds tests, not packages.
    sys.path.pop(0)
    sys.stdout.write(json.dumps(outcomes()))
