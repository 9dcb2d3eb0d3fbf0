#!/usr/bin/env python3
"""Makes quarry(1) of what the command says of itself: man_page.py BINARY PAGE.gz

The help of the application comes first, then a section for each verb and for the verbs below it.
"""

import gzip
import pathlib
import re
import subprocess
import sys

VERB = re.compile(r"^  ([a-z]+) +\S", re.MULTILINE)


def help_of(binary, path):
    done = subprocess.run([binary, *path, "--help"], check=True, stdout=subprocess.PIPE, text=True, encoding="utf-8")
    return done.stdout


def verbs_in(text):
    """Names below "Subcommands:", in order."""
    listed = text.partition("Subcommands:\n")[2].partition("\n\n")[0]
    return VERB.findall(listed)


def verbatim(text):
    """As it stands: no request of roff, no hyphen that is another character."""
    escaped = text.strip("\n").replace("\\", "\\e").replace("-", "\\-")
    return ".nf\n" + "\n".join("\\&" + line for line in escaped.splitlines()) + "\n.fi\n"


def page(binary):
    version = subprocess.run([binary, "--version"], check=True, stdout=subprocess.PIPE, text=True).stdout.strip()
    text = help_of(binary, [])
    # No date: the page is a function of the command.
    parts = [f'.TH QUARRY 1 "" "{version}"\n.SH NAME\nquarry \\- storage engine for the data that graph neural networks train on\n'
             ".SH SYNOPSIS\n.B quarry\n.I VERB\n[options]\n.SH DESCRIPTION\n", verbatim(text)]
    paths = [[verb] for verb in verbs_in(text)]
    if not paths:
        sys.exit(f"man_page.py: {binary} --help lists no verbs")
    while paths:
        path = paths.pop(0)
        text = help_of(binary, path)
        parts.append(f".SH {' '.join(['QUARRY', *path]).upper()}\n" + verbatim(text))
        paths[:0] = [[*path, verb] for verb in verbs_in(text)]
    return "".join(parts)


def main():
    binary, target = sys.argv[1:]
    # No time in it either.
    pathlib.Path(target).write_bytes(gzip.compress(page(binary).encode(), 9, mtime=0))


if __name__ == "__main__":
    main()
