"""Control groups of version 1 or 2, where this process may make some."""

import contextlib
import itertools
import os
import pathlib

import harness

ROOT = pathlib.Path("/sys/fs/cgroup")
NUMBERS = itertools.count()


class Group:
    """A group below one's own with this limit: {"memory": bytes} or {"pids": count}. A command joins it by `prefix`."""

    def __init__(self, controller, limit):
        self.controller = controller
        parent, self.version = folder_of(controller)
        self.folder = parent / f"quarry-soak-{os.getpid()}-{next(NUMBERS)}"
        try:
            self.folder.mkdir()
            self.write({"memory": ("memory.limit_in_bytes", "memory.max"), "pids": ("pids.max", "pids.max")}[controller], limit)
            if controller == "memory" and self.version == 2:
                with contextlib.suppress(OSError):
                    (self.folder / "memory.swap.max").write_text("0")
        except OSError as error:
            self.remove()
            raise harness.Skip(f"no control group of {controller} can be made: {error}") from error
        self.prefix = ["sh", "-c", 'echo $$ >"$1" && shift && exec "$@"', "sh", str(self.folder / "cgroup.procs")]

    def write(self, names, value):
        (self.folder / names[self.version - 1]).write_text(str(value))

    def killed(self):
        """How many processes its limit of memory ended."""
        name = "memory.oom_control" if self.version == 1 else "memory.events"
        for line in (self.folder / name).read_text().splitlines():
            if line.startswith("oom_kill "):
                return int(line.split()[1])
        return 0

    def peak(self):
        """The most bytes it ever held, page cache included; 0 where the kernel does not tell."""
        name = "memory.max_usage_in_bytes" if self.version == 1 else "memory.peak"
        with contextlib.suppress(OSError):
            return int((self.folder / name).read_text())
        return 0

    def remove(self):
        with contextlib.suppress(OSError):
            self.folder.rmdir()


def folder_of(controller):
    """(folder of one's own group, version of its hierarchy). Skip where the controller is not there."""
    own = {}
    for line in pathlib.Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        for name in controllers.split(","):
            own[name] = path
    if controller in own:
        # The group that a container shows may be the root of what it was given.
        for folder in (ROOT / controller / own[controller].lstrip("/"), ROOT / controller):
            if folder.is_dir():
                return folder, 1
    for mount in (ROOT, ROOT / "unified"):
        folder = mount / own.get("", "/").lstrip("/")
        subtree = folder / "cgroup.subtree_control"
        with contextlib.suppress(OSError):
            if controller not in subtree.read_text().split():
                subtree.write_text(f"+{controller}")
            return folder, 2
    raise harness.Skip(f"there is no control group of {controller} here")
