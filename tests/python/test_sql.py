"""SQL: rows as tuples, arrays and Arrow."""

import ctypes
import importlib.util
import threading
import time
import unittest

import numpy as np

import quarry
from quarry._waiting import run
from small_graph import NODES, DatabaseTest, heed_interrupts

_FOREVER = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n"


class SqlTest(DatabaseTest):
    def test_rows_come_as_tuples_and_as_arrays(self):
        result = self.db.sql("SELECT id, label * 0.5 AS half, split FROM nodes WHERE id < ?1 ORDER BY id", [3])
        self.assertEqual(result.columns, ["id", "half", "split"])
        rows = result.fetchall()
        self.assertEqual([row[0] for row in rows], [0, 1, 2])
        self.assertIsNone(rows[0][1], "node 0 has no label")
        self.assertEqual(rows, list(result))
        columns = result.numpy()
        np.testing.assert_array_equal(columns["id"], [0, 1, 2])
        self.assertEqual((columns["id"].dtype, columns["half"].dtype, columns["split"].dtype), (np.int64, np.float64, object))
        self.assertTrue(np.isnan(columns["half"][0]))
        self.assertEqual(self.db.sql("SELECT count(*) FROM nodes").fetchone(), (NODES,))
        self.assertIn("3 rows of id, half, split", repr(result))

    def test_notebooks_show_the_first_rows(self):
        shown = self.db.sql("SELECT id, '<b>' AS text FROM nodes WHERE id < 30 ORDER BY id")._repr_html_()
        self.assertIn("30 rows, the first 20", shown)
        self.assertIn("<tr><th>id</th><th>text</th></tr><tr><td>0</td><td>&lt;b&gt;</td></tr>", shown)
        self.assertEqual(shown.count("<tr>"), 21)
        self.assertIn("0 rows", self.db.sql("SELECT id FROM nodes WHERE id < 0")._repr_html_())

    def test_values_of_every_type_pass_both_ways(self):
        given = [None, 7, 2.5, "text", b"\0blob"]
        self.assertEqual(self.db.sql("SELECT ?1, ?2, ?3, ?4, ?5", given).fetchall(), [tuple(given)])
        with self.assertRaisesRegex(quarry.InvalidArgument, "list"):
            self.db.sql("SELECT ?1", [[1]])
        with self.assertRaises(quarry.InvalidArgument):
            self.db.sql("SELECT nothing FROM nowhere")
        blob = self.db.sql("SELECT feature FROM features WHERE id = 7").fetchone()[0]
        np.testing.assert_array_equal(np.frombuffer(blob, np.float32), self.graph["features"][7])

    def test_writing_takes_a_word(self):
        with self.assertRaises(quarry.Error):
            self.db.sql("UPDATE nodes SET label = 3 WHERE id = 5")
        self.db.sql("UPDATE nodes SET label = 3 WHERE id = 5", write=True)
        self.assertEqual(self.db["label"][5], 3)

    def test_a_statement_ends_when_it_is_told_to(self):
        heed_interrupts(self)
        start = time.monotonic()
        with self.assertRaises(quarry.Cancelled):
            self.db.sql(_FOREVER, timeout=0.1)
        timer = threading.Timer(0.1, ctypes.pythonapi.PyErr_SetInterrupt)
        with self.assertRaises(KeyboardInterrupt):
            timer.start()
            self.db.sql(_FOREVER)
        timer.join()
        self.assertLess(time.monotonic() - start, 30)

    def test_a_call_that_has_not_begun_is_ended_too(self):
        """As SQLite has it: an interrupt ends the statement that runs, and is forgotten where none does."""
        asked, begun, ended = threading.Event(), threading.Event(), threading.Event()

        def call():
            asked.wait()
            begun.set()
            ended.wait()

        def cancel():
            if begun.is_set():
                ended.set()
            asked.set()

        def interrupted():
            raise KeyboardInterrupt

        with self.assertRaises(KeyboardInterrupt):
            run(call, cancel, interrupted)

    @unittest.skipUnless(importlib.util.find_spec("pyarrow"), "pyarrow is not there")
    def test_arrow_reads_them(self):
        result = self.db.sql("SELECT id, label, label + 0.5 AS more, split, feature FROM nodes JOIN features USING (id) ORDER BY id")
        table = result.arrow()
        self.assertEqual(table.num_rows, NODES)
        self.assertEqual([str(kind) for kind in table.schema.types], ["int64", "int64", "double", "large_string", "large_binary"])
        self.assertEqual(table.column("label").null_count, int((self.graph["labels"] < 0).sum()))
        self.assertEqual([tuple(row.values()) for row in table.to_pylist()], result.fetchall())
        self.assertEqual(self.db.sql("SELECT id FROM nodes WHERE id < 0").arrow().num_rows, 0)

    @unittest.skipUnless(importlib.util.find_spec("pandas"), "pandas is not there")
    def test_pandas_reads_them(self):
        frame = self.db.sql("SELECT split, count(*) AS n FROM nodes GROUP BY split ORDER BY split").df()
        self.assertEqual(dict(zip(frame["split"], frame["n"])), {"test": 100, "train": 300, "valid": 100})

    @unittest.skipUnless(importlib.util.find_spec("polars"), "polars is not there")
    def test_polars_reads_them(self):
        import polars

        result = self.db.sql("SELECT id, label, label + 0.5 AS more, split, feature FROM nodes JOIN features USING (id) ORDER BY id")
        self.assertEqual(polars.DataFrame(result).rows(), result.fetchall())

    @unittest.skipUnless(importlib.util.find_spec("duckdb"), "duckdb is not there")
    def test_duckdb_joins_them(self):
        import duckdb

        nodes = self.db.sql("SELECT id, label, split FROM nodes")
        edges = self.db.sql("SELECT src, dst FROM edges")
        connection = duckdb.connect()
        joined = connection.sql("SELECT count(*) FROM edges JOIN nodes ON dst = id WHERE label = 2").fetchall()
        labels = self.graph["labels"][self.graph["edges"][1]]
        self.assertEqual(joined, [(int((labels == 2).sum()),)])
        self.assertEqual(len(nodes), NODES)
        self.assertEqual(len(edges), self.graph["edges"].shape[1])


if __name__ == "__main__":
    unittest.main()
