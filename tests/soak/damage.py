"""What can happen to a file that nobody opened: bits, ends, pages, and the file itself."""

import os
import shutil

MARK, MARK_BYTES = b"QRYCOMMT", 40  # what each commit leaves in the log (engine/catalog/commit_mark.h)
WAYS = ("flip", "flip", "flip", "flip", "truncate", "truncate", "zero", "garbage", "remove")


def files_of(database):
    """The files of a database, by path in it, that anything reads: LOCK's text is for people."""
    found = []
    for folder, _, names in os.walk(database):
        for name in names:
            path = os.path.join(folder, name)
            if name != "LOCK" and os.path.getsize(path) > 0:
                found.append(os.path.relpath(path, database))
    return sorted(found)


def kind_of(path):
    """What a file is, for counts."""
    folder, name = os.path.split(path)
    if folder == "catalog" and "." not in name:
        return name.split("-")[0]
    return os.path.splitext(name)[1].lstrip(".") or name


def random_place(rng, size):
    """A byte of a file: anywhere, or where its header or its last record is."""
    if rng.random() < 0.5:
        return rng.randrange(size)
    if rng.random() < 0.5:
        return rng.randrange(min(size, 4096))
    return size - 1 - rng.randrange(min(size, 4096))


def damage(rng, path, ways=WAYS):
    """Damages a file in a random way, and says how. It then differs from what it was."""
    path = str(path)
    with open(path, "rb") as file:
        before = file.read()
    way = rng.choice(ways)
    size = len(before)
    if path.endswith(".log") and MARK in before and rng.random() < 0.9:
        size = before.rindex(MARK) + MARK_BYTES  # behind it a log of the catalog has room: zeros
    if way == "remove":
        os.remove(path)
        return "removed"
    if way == "truncate":
        length = rng.choice((rng.randrange(size), size - 1 - rng.randrange(min(size, 64))))
        after, text = before[:length], f"cut from {size} to {length} bytes"
    elif way == "flip":
        place, bit = random_place(rng, size), rng.randrange(8)
        after = before[:place] + bytes([before[place] ^ 1 << bit]) + before[place + 1:]
        text = f"bit {bit} of byte {place} of {size} flipped"
    else:
        place = random_place(rng, size) // 512 * 512
        length = min(rng.choice((512, 4096)), size - place)
        content = bytes(length) if way == "zero" else rng.randbytes(length)
        after = before[:place] + content + before[place + length:]
        text = f"bytes {place} to {place + length - 1} of {size} {'zeroed' if way == 'zero' else 'overwritten by others'}"
        if after == before:  # zeros already
            return damage(rng, path, ("flip",))
    # A file of its own: others may have hard links to this one.
    with open(path + ".damaged", "wb") as file:
        file.write(after)
    shutil.copymode(path, path + ".damaged")
    os.replace(path + ".damaged", path)
    return text
