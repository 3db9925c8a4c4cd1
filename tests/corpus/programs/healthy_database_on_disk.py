"""Inserts into a database in a file, with a page cache of 16 MiB."""

import sqlite3
import tempfile

from clock import steps

with tempfile.TemporaryDirectory() as folder:
    database = sqlite3.connect(folder + "/audit.db")
    database.execute("pragma cache_size = -16000")
    database.execute("pragma synchronous = off")
    database.execute("create table audit (at integer, text text)")
    for step in steps(0.1):
        database.executemany("insert into audit values (?, ?)", [(step, "event " * 60) for _ in range(150)])
        database.commit()
