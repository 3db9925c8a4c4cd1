"""Writes the files of this directory: make.py tests/golden/peer-0.4.3/cuda_tracker.json.

The same events as each tool writes them when it is asked for nothing but a codec. Written with pyarrow 26.0.1,
duckdb 2.0.0, pandas 3.1.1 and polars 2.1.0.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import duckdb
import pandas
import polars
import pyarrow
import pyarrow.parquet

HERE = Path(__file__).parent


def main() -> None:
    """One file a tool and codec."""
    rows = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    for row in rows:
        row["metadata"] = json.dumps(row["metadata"])
    table = pyarrow.Table.from_pylist(rows)
    for codec in ("snappy", "gzip", "zstd", "lz4", "none"):
        pyarrow.parquet.write_table(table, HERE / f"pyarrow-{codec}.parquet", compression=codec)
    for codec in ("snappy", "gzip", "zstd"):
        pyarrow.parquet.write_table(
            table, HERE / f"pyarrow-{codec}-pages2.parquet", compression=codec, data_page_version="2.0"
        )
    pyarrow.parquet.write_table(table, HERE / "pyarrow-brotli.parquet", compression="brotli")
    connection = duckdb.connect()
    connection.register("events", table)
    connection.execute(f"COPY events TO '{HERE / 'duckdb.parquet'}' (FORMAT parquet)")
    polars.DataFrame(rows, infer_schema_length=None).write_parquet(HERE / "polars.parquet")
    for row in rows[::2]:
        row["device_free_bytes"] = None
    # A column of integers with gaps is one of floats to pandas.
    pandas.DataFrame(rows).to_parquet(HERE / "pandas.parquet")


main()
