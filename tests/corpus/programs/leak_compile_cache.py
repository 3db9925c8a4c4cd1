"""A template engine whose cache is keyed by the text with its values in it. Memory: anonymous."""

from clock import steps

cache = {}


def render(user):
    source = f"rows = [({user!r}, n) for n in range(10)]\n" + "\n".join(
        f"x{n} = 'user {user} field {n}'" for n in range(400)
    )
    if source not in cache:
        cache[source] = compile(source, "template", "exec")  # leak
    return cache[source]


for step in steps(0.1):
    render(f"u{step}")
