"""Joins and point lookups: Quarry's tables under SQLite beside DuckDB's tables in memory, made of the same arrays.

usage: sql_join.py FOLDER EXTENSION     FOLDER: graph/ and graph.db, as bench_sql_join.sh makes them
"""

import sqlite3
import sys
import time

import duckdb
import numpy as np

RUNS = 3
LOOKUPS = 100_000
JOIN_TARGET = 3  # times DuckDB's

JOINS = {
    "edges of two equal labels": "SELECT count(*) FROM edges e JOIN nodes s ON s.id = e.src JOIN nodes d ON d.id = e.dst WHERE s.label = d.label",
    "edges by two labels": "SELECT count(*), max(n) FROM (SELECT s.label, d.label, count(*) AS n FROM edges e JOIN nodes s ON s.id = e.src JOIN nodes d ON d.id = e.dst GROUP BY 1, 2)",
    "edges into one label": "SELECT count(*) FROM edges e JOIN nodes d ON d.id = e.dst WHERE d.label = 7",
}


def seconds_of(work):
    """Processor seconds of the best of some runs, and what the work returned."""
    best = float("inf")
    for _ in range(RUNS):
        start = time.process_time()
        result = work()
        best = min(best, time.process_time() - start)
    return best, result


def open_duckdb(folder):
    connection = duckdb.connect()
    connection.execute("SET threads = 1")
    connection.execute(f"SET temp_directory = '{folder}/duckdb'")  # else the folder that this is run in
    edges = np.load(f"{folder}/graph/edges.npy")
    labels = np.load(f"{folder}/graph/labels.npy")
    connection.register("edge_arrays", {"src": edges[0].astype(np.uint32), "dst": edges[1].astype(np.uint32)})
    connection.register("node_arrays", {"id": np.arange(len(labels), dtype=np.uint32), "label": labels})
    # In tables of its own, DuckDB knows how many rows a join finds; over the arrays themselves it joins the nodes
    # with each other first.
    connection.execute("CREATE TABLE edges AS SELECT * FROM edge_arrays; CREATE TABLE nodes AS SELECT * FROM node_arrays")
    return connection, len(labels)


def open_quarry(folder, extension):
    connection = sqlite3.connect(":memory:", isolation_level=None)
    connection.enable_load_extension(True)
    connection.load_extension(extension)
    connection.execute(f"CREATE VIRTUAL TABLE g USING quarry('{folder}/graph.db')")
    return connection


def main():
    folder, extension = sys.argv[1:]
    rival, nodes = open_duckdb(folder)
    quarry = open_quarry(folder, extension)
    met = True
    print(f"DuckDB {duckdb.__version__}, SQLite {sqlite3.sqlite_version}, {nodes} nodes; processor seconds, one thread")
    for name, text in JOINS.items():
        duck_seconds, expected = seconds_of(lambda text=text: rival.execute(text).fetchall())
        own_seconds, found = seconds_of(lambda text=text: quarry.execute(text).fetchall())
        if found != expected:
            sys.exit(f"{name}: {found}, and DuckDB finds {expected}")
        ratio = own_seconds / duck_seconds
        verdict = ""
        if name == "edges of two equal labels":
            met = ratio <= JOIN_TARGET
            verdict = f"  target {JOIN_TARGET:.2f}: {'met' if met else 'MISSED'}"
        print(f"{name:>26}: {own_seconds:6.2f} s, DuckDB {duck_seconds:6.2f} s: {ratio:.2f}{verdict}")
    ids = [int(i) for i in np.random.default_rng(1).integers(0, nodes, LOOKUPS)]
    text = "SELECT label FROM nodes WHERE id = ?"
    own_seconds, found = seconds_of(lambda: [quarry.execute(text, (i,)).fetchone()[0] for i in ids])
    few = ids[: LOOKUPS // 100]
    duck_seconds, expected = seconds_of(lambda: [rival.execute(text, (i,)).fetchone()[0] for i in few])
    if found[: len(few)] != expected:
        sys.exit("point lookups differ")
    print(f"{'a label by its node':>26}: {own_seconds / LOOKUPS * 1e6:6.1f} us, DuckDB {duck_seconds / len(few) * 1e6:6.1f} us")
    sys.exit(0 if met else 1)


main()
