"""Documents of every size are parsed, counted by a few keys, and dropped."""

import collections
import json
import random
import string

from clock import steps

random.seed(4)
counts = collections.Counter()
lengths = collections.deque(maxlen=1000)


def document():
    rows = int(random.paretovariate(1.2) * 200)
    return json.dumps(
        [
            {"id": number, "tag": random.choice(string.ascii_lowercase), "text": "x" * 200}
            for number in range(min(rows, 8000))
        ]
    )


for _ in steps(0.15):
    text = document()
    for row in json.loads(text):
        counts[row["tag"]] += 1
    lengths.append(len(text))
