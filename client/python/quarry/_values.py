"""What callers give, as the engine takes it: sizes, ids, element types."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import numpy.typing as npt

from ._errors import InvalidArgument, UsageError

UINT32 = npt.NDArray[np.uint32]

# enum quarry_element_type
FLOAT32, FLOAT16, BFLOAT16, INT8, UINT8, INT32, INT64 = 1, 2, 3, 4, 5, 6, 7
TYPE_NAMES = {1: "float32", 2: "float16", 3: "bfloat16", 4: "int8", 5: "uint8", 6: "int32", 7: "int64"}
# Types that NumPy has too, element by element; the others are decoded. (An int8 row has a scale.)
NUMPY_TYPES: dict[int, type[np.generic]] = {
    FLOAT32: np.float32,
    FLOAT16: np.float16,
    UINT8: np.uint8,
    INT32: np.int32,
    INT64: np.int64,
}
ALL_NEIGHBORS = 2**32 - 1  # in the place of a fanout, QUARRY_ALL_NEIGHBORS
SPLITS = {"train": 1, "valid": 2, "val": 2, "test": 3}
DIRECTIONS = {"in": 0, "out": 1, "both": 2}

_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12, "ki": 2**10, "mi": 2**20, "gi": 2**30, "ti": 2**40}


def size(value: int | float | str | None, whole: int | None = None, what: str = "size") -> int:
    """Bytes of 2**30, "8GiB", "500MB"; of `whole` also "10%" and "3x"."""
    if value is None:
        return 0
    if isinstance(value, str):
        text = value.strip().replace(" ", "")
        share = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)(%|x)", text)
        if share and whole is not None:
            return int(float(share[1]) * (0.01 if share[2] == "%" else 1) * whole)
        match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)([kKmMgGtT]?i?)[bB]?", text)
        if match is None or match[2].lower() not in _UNITS:
            raise UsageError(f"{what} {value!r}: bytes, or a text such as '8GiB' or '500MB'" + ("" if whole is None else ", '10%' or '3x'"))
        return int(float(match[1]) * _UNITS[match[2].lower()])
    if value < 0:
        raise UsageError(f"{what} {value}: less than nothing")
    return int(value)


def ids_of(given: Any, count: int, what: str = "ids") -> UINT32:
    """Flat uint32 ids of anything that NumPy takes for integers: below `count`, negative ones from the end."""
    array = np.asarray(given)
    if array.dtype == np.bool_:
        if array.shape != (count,):
            raise UsageError(f"a mask of shape {array.shape} for {count} {what}")
        return np.flatnonzero(array).astype(np.uint32)
    if array.size == 0:
        return np.empty(0, np.uint32)
    if array.dtype.kind not in "iu":
        raise UsageError(f"{what} of type {array.dtype}: integers, or a mask, are wanted")
    flat = np.ascontiguousarray(array).reshape(-1)
    lowest, highest = int(flat.min()), int(flat.max())
    if lowest < -count or highest >= count:
        raise InvalidArgument(f"{what} from {lowest} to {highest}: there are {count}, from 0 on")
    if lowest < 0:
        flat = np.where(flat < 0, flat + count, flat)
    return flat.astype(np.uint32, copy=False)


def bytes_text(count: float) -> str:
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if count < 1024 or unit == "TiB":
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    raise AssertionError("unreachable")
