"""A bound on the memory of a process, for rivals that read through the page cache."""

from __future__ import annotations

import os
import time
from pathlib import Path


class Cgroup:
    """A memory cgroup (v1 or v2) for one process and its page cache; none where that is not possible."""

    def __init__(self, limit_bytes: int) -> None:
        self.folder: Path | None = None
        v1, v2 = Path("/sys/fs/cgroup/memory"), Path("/sys/fs/cgroup")
        try:
            if v1.is_dir():
                folder, limit = v1 / f"quarry-{os.getpid()}", "memory.limit_in_bytes"
            else:
                (v2 / "cgroup.subtree_control").write_text("+memory")
                folder, limit = v2 / f"quarry-{os.getpid()}", "memory.max"
            folder.mkdir()
            self.folder = folder
            (folder / limit).write_text(str(limit_bytes))
        except OSError:
            self.close()

    def enter(self) -> None:
        if self.folder is not None:
            (self.folder / "cgroup.procs").write_text(str(os.getpid()))

    def close(self) -> None:
        """Its process has ended, and is taken out of it a moment later."""
        folder, self.folder = self.folder, None
        deadline = time.monotonic() + 5
        while folder is not None:
            try:
                folder.rmdir()
                folder = None
            except OSError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.1)
