"""What notebooks show in the place of a repr."""

from __future__ import annotations

from html import escape
from typing import Any, Iterable, Sequence


def table(caption: object, columns: Sequence[str] = (), rows: Iterable[Sequence[Any]] = ()) -> str:
    """A caption, and the rows below it; values are shown as texts."""

    def line(tag: str, values: Iterable[Any]) -> str:
        return "<tr>" + "".join(f"<{tag}>{escape(str(value))}</{tag}>" for value in values) + "</tr>"

    body = "".join(line("td", row) for row in rows)
    return f"<div>{escape(str(caption))}</div>" + (f"<table>{line('th', columns)}{body}</table>" if body else "")
