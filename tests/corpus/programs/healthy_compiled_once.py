"""Compiles 60 functions as they are first met, in the first quarter."""

from clock import steps

functions = {}


def compiled(number):
    if number not in functions:
        source = "\n".join(f"x{n} = 'function {number} field {n}'" for n in range(2000))
        functions[number] = compile(source, f"generated {number}", "exec")
    return functions[number]


for step in steps(0.1):
    compiled(step // 3 % 60)
