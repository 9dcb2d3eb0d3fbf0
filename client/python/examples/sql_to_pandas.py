"""Questions to a database in SQL, answered as pandas frames: `sql_to_pandas.py [DB]`. Without one, on a small graph made here."""

import sys
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd

import quarry
from quickstart import make


def main(path: Path) -> None:
    pd.set_option("display.precision", 2)
    with quarry.open(path, memory="256MiB") as db:
        sizes = db.sql("SELECT split, label, count(*) AS nodes FROM nodes GROUP BY split, label").df()
        print(sizes.pivot(index="label", columns="split", values="nodes"))

        # How often an edge leads to a node of the same class: edges joined with the labels of both ends, in the engine.
        alike = db.sql(
            """SELECT s.label AS source, d.label AS target, count(*) AS edges
               FROM edges e JOIN nodes s ON s.id = e.src JOIN nodes d ON d.id = e.dst GROUP BY 1, 2"""
        ).df()
        print(alike.pivot(index="source", columns="target", values="edges"))
        print(f"homophily {alike.edges[alike.source == alike.target].sum() / alike.edges.sum():.2f}")
        assert alike["edges"].sum() == db.num_edges

        # Parameters are ?1, ?2, ...; what SQL finds, the table reads.
        heavy = db.sql("SELECT id, in_degree FROM nodes ORDER BY in_degree DESC, id LIMIT ?1", [5]).df()
        heavy["norm"] = np.linalg.norm(db["feature"][heavy["id"].to_numpy()], axis=1)
        print(heavy)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(Path(sys.argv[1]))
    else:
        with tempfile.TemporaryDirectory() as folder:
            make(Path(folder) / "graph.db")
            main(Path(folder) / "graph.db")
