# SPDX-License-Identifier: BSD-2-Clause
"""pandas, DuckDB and Polars write and read files and compute; prints what each finds.
tests/clients/dataframes.py LIBRARY DIRECTORY, where DIRECTORY may have what the others wrote."""

import hashlib
import os
import sys

ROWS = 300_000


def columns():
    """Numbers and words that are the same each time."""
    numbers = [i * 7919 % 100_003 for i in range(ROWS)]
    return {
        "id": list(range(ROWS)),
        "number": numbers,
        "share": [number / 7 for number in numbers],
        "word": [f"word {number % 977} of many" for number in numbers],
    }


def digest(what, text):
    print(what, hashlib.sha256(text.encode()).hexdigest())


def content(path):
    with open(path, "rb") as file:
        print(os.path.basename(path), hashlib.sha256(file.read()).hexdigest())


def by_pandas(directory):
    import pandas
    table = pandas.DataFrame(columns())
    csv, pickle = (os.path.join(directory, f"pandas.{kind}") for kind in ("csv", "pkl"))
    table.to_csv(csv, index=False)
    table.to_pickle(pickle)
    content(csv)
    back = pandas.read_csv(csv)
    pandas.testing.assert_frame_equal(back, table)
    pandas.testing.assert_frame_equal(pandas.read_pickle(pickle), table)
    print(back.groupby("word").agg({"number": ["sum", "max"], "share": "mean"}).head(5).to_csv())
    joined = back.merge(back[back.id % 100 == 0], on="number", suffixes=("", "_other"))
    digest("merge", joined.sort_values(["id", "id_other"]).to_csv())
    digest("pivot", back.pivot_table(index="word", values="share", aggfunc="sum").to_csv())
    print(back.describe().to_csv())


def by_duckdb(directory):
    import duckdb
    files = {kind: os.path.join(directory, f"duckdb.{kind}") for kind in ("csv", "parquet", "db")}
    with duckdb.connect(files["db"], config={"threads": 2}) as database:
        database.execute(f"""CREATE TABLE t AS SELECT i AS id, i * 7919 % 100003 AS number, number / 7 AS share,
            'word ' || number % 977 || ' of many' AS word FROM range({ROWS}) r(i)""")
        for kind in "csv", "parquet":
            database.execute(f"COPY (SELECT * FROM t ORDER BY id) TO '{files[kind]}'")
    content(files["csv"])
    for source in "t", f"'{files['csv']}'", f"'{files['parquet']}'":
        with duckdb.connect(files["db"], read_only=True, config={"threads": 2}) as database:
            for query in (f"SELECT count(*), sum(number), max(word), sum(hash(word)) FROM {source}",
                          f"SELECT word, count(*), sum(number) FROM {source} GROUP BY word ORDER BY 3, 1 LIMIT 5",
                          f"SELECT count(*) FROM {source} a JOIN {source} b ON a.number = b.number WHERE a.id < b.id",
                          f"SELECT id FROM {source} ORDER BY share DESC, id LIMIT 5"):
                print(database.execute(query).fetchall())


def by_polars(directory):
    import polars
    table = polars.DataFrame(columns())
    files = {kind: os.path.join(directory, f"polars.{kind}") for kind in ("csv", "parquet", "arrow")}
    table.write_csv(files["csv"])
    table.write_parquet(files["parquet"])
    table.write_ipc(files["arrow"])
    content(files["csv"])
    for back in (polars.read_csv(files["csv"]), polars.read_parquet(files["parquet"]),
                 polars.read_ipc(files["arrow"]), polars.scan_parquet(files["parquet"]).collect()):
        print(back.equals(table))
        grouped = back.group_by("word").agg(polars.col("number").sum(), polars.len()).sort("word")
        digest("group", grouped.write_csv())
        joined = back.join(back.filter(polars.col("id") % 100 == 0), on="number")
        digest("join", joined.sort("id", "id_right").write_csv())
        print(back.sort("share", "id", descending=True).head(5).rows())


if __name__ == "__main__":
    {"pandas": by_pandas, "duckdb": by_duckdb, "polars": by_polars}[sys.argv[1]](sys.argv[2])
