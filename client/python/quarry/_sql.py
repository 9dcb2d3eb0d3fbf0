"""What a statement gave."""

from __future__ import annotations

from typing import Any, Iterator

import numpy as np
import numpy.typing as npt

from . import _html, _quarry

_SHOWN_ROWS = 20


class Result:
    """The rows of a statement, all of them: as tuples, NumPy arrays, or whatever reads Arrow (pandas, polars,
    pyarrow and DuckDB do, by `__arrow_c_stream__`)."""

    def __init__(self, rows: _quarry.Rows) -> None:
        self._rows = rows

    @property
    def columns(self) -> list[str]:
        return self._rows.columns

    def fetchall(self) -> list[tuple[Any, ...]]:
        return self._rows.tuples()

    def fetchone(self) -> tuple[Any, ...] | None:
        """The first row."""
        rows = self._rows.tuples()
        return rows[0] if rows else None

    def numpy(self) -> dict[str, npt.NDArray[Any]]:
        """An array a column: int64, float64 (NULL is NaN), or objects."""
        arrays: dict[str, npt.NDArray[Any]] = {}
        for i, name in enumerate(self.columns):
            values = self._rows.column(i)
            if isinstance(values, list):
                array = np.empty(len(values), object)
                array[:] = values
                arrays[name] = array
            else:
                arrays[name] = values
        return arrays

    def arrow(self) -> Any:
        """A pyarrow.Table."""
        import pyarrow  # type: ignore[import-not-found,import-untyped,unused-ignore]

        return pyarrow.table(self)

    def df(self) -> Any:
        """A pandas.DataFrame."""
        import pandas  # type: ignore[import-not-found,import-untyped,unused-ignore]

        return pandas.DataFrame(self.numpy())

    def __arrow_c_schema__(self) -> object:
        return self._rows.arrow_schema()

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self._rows.arrow_stream()

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        return iter(self.fetchall())

    def __len__(self) -> int:
        return len(self._rows)

    def __repr__(self) -> str:
        return f"<quarry.Result: {len(self)} rows of {', '.join(self.columns) or 'nothing'}>"

    def _repr_html_(self) -> str:
        columns = [self._rows.column(i)[:_SHOWN_ROWS] for i in range(len(self.columns))]
        caption = f"{len(self)} rows" + (f", the first {_SHOWN_ROWS}" if len(self) > _SHOWN_ROWS else "")
        return _html.table(caption, self.columns, zip(*columns))
