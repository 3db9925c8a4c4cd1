"""An audit table in an in-memory database that nothing prunes. Memory: anonymous."""

import sqlite3

from clock import steps

database = sqlite3.connect(":memory:")
database.execute("create table audit (at integer, text text)")
for step in steps(0.1):
    rows = [(step, "event " * 60) for _ in range(250)]
    database.executemany("insert into audit values (?, ?)", rows)  # leak
