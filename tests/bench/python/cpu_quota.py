"""A bound on the processors of processes that run already."""

from __future__ import annotations

import os
import time
from pathlib import Path

_PERIOD_US = 100_000


class Quota:
    """So many processors' time for the processes that enter: by a cgroup (v2's cpu.max, or v1's CFS quota), or where none can
    be made by binding their threads to one core, `core`, which each has as far as others leave it. `how` says which, and why."""

    def __init__(self, processors: float, name: str, core: int) -> None:
        self.folder: Path | None = None
        self._core = core % (os.cpu_count() or 1)
        v1, v2 = Path("/sys/fs/cgroup/cpu"), Path("/sys/fs/cgroup")
        limit_us = str(int(processors * _PERIOD_US))
        try:
            if v1.is_dir():
                folder, limits, self.how = v1 / name, {"cpu.cfs_period_us": str(_PERIOD_US), "cpu.cfs_quota_us": limit_us}, "cgroup v1, cpu.cfs_quota_us"
            else:
                (v2 / "cgroup.subtree_control").write_text("+cpu")
                folder, limits, self.how = v2 / name, {"cpu.max": f"{limit_us} {_PERIOD_US}"}, "cgroup v2, cpu.max"
            folder.mkdir()
            self.folder = folder
            for file, value in limits.items():
                (folder / file).write_text(value)
        except OSError as error:
            self.close()
            self.how = f"no quota ({error}): bound to core {self._core}"

    def enter(self, pid: int) -> None:
        if self.folder is not None:
            (self.folder / "cgroup.procs").write_text(str(pid))
            return
        for thread in os.listdir(f"/proc/{pid}/task"):
            os.sched_setaffinity(int(thread), {self._core})

    def close(self) -> None:
        """Its processes have ended, and are taken out of it a moment later."""
        folder, self.folder = self.folder, None
        deadline = time.monotonic() + 10
        while folder is not None:
            try:
                folder.rmdir()
                folder = None
            except OSError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.1)
