"""What memory is free."""

from __future__ import annotations

from pathlib import Path


def available_bytes(root: Path = Path("/")) -> int:
    """Memory that can be had without swapping, of the machine and of the cgroup (v2) of this process. Where neither
    can be read: no limit."""
    room = 1 << 62
    for line in _lines(root / "proc/meminfo"):
        if line.startswith("MemAvailable:"):
            room = int(line.split()[1]) * 1024
    for line in _lines(root / "proc/self/cgroup"):
        if not line.startswith("0::/"):
            continue
        mount, group = root / "sys/fs/cgroup", root / "sys/fs/cgroup" / line[4:]
        while True:  # a limit of the groups above counts, too
            room = min(room, _room_in(group))
            if group == mount:
                break
            group = group.parent
    return room


def _room_in(group: Path) -> int:
    most, used = _lines(group / "memory.max"), _lines(group / "memory.current")
    if not most or not used or most[0] == "max":
        return 1 << 62
    # Cached pages of files go when memory is wanted.
    cached = sum(int(line.split()[1]) for line in _lines(group / "memory.stat") if line.startswith(("inactive_file ", "active_file ")))
    return max(0, int(most[0]) - int(used[0]) + cached)


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text().splitlines()
    except OSError:
        return []
