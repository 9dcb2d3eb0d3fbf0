"""The command `quarry` of the wheel, whose program lies beside this file. It is no part of the package `quarry`, so that
a command does not wait for NumPy."""

from __future__ import annotations

import os
import sys
from typing import NoReturn


def main() -> NoReturn:
    program = os.path.join(os.path.dirname(os.path.abspath(__file__)), "quarry")
    try:
        os.execv(program, ["quarry", *sys.argv[1:]])
    except OSError as error:
        sys.exit(f"quarry: the program of this package does not start: {program}: {error.strerror}. Install the package again")
