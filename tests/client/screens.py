#!/usr/bin/env python3
"""Holds the screens of a document against what the commands in them print.

A screen is a fenced block of ```console: lines that begin with "$ " (and "> ", which continue them) are run by a shell,
one folder for the whole document, with `quarry` on the PATH; what stands below each is its output, stderr included. Figures that differ from run
to run (times, rates, memory, dates, free space) are compared as "#"; "..." on a line of its own stands for lines left out.

    screens.py BINARY DOCUMENT            exit 1 and a diff where they differ
    screens.py BINARY DOCUMENT --update   writes what the commands print into the document
"""

import argparse
import difflib
import os
import pathlib
import re
import subprocess
import sys
import tempfile

SCREEN = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LEFT_OUT = "..."
FOLDER = "/data"  # what the document calls the folder that its commands run in
VOLATILE = [
    re.compile(r"\b[0-9a-f]{32}\b"),
    re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\dZ?"),
    re.compile(r"\b[\d,.]+(?= ?(s|ms|us|min|h)\b)"),
    re.compile(r"\b[\d,.]+ ?[kKMGT]?i?B?(?=/s\b)"),
    re.compile(r"\b[\d,.]+(?= [a-z]+/s\b)"),
    re.compile(r"(?<=catalog )[\d.]+ [KM]iB"),
    re.compile(r"\d+(?= files linked)"),  # tables of the catalog, which RocksDB merges when it likes
    re.compile(r"(?<=copied \()[\d.]+ [KM]iB"),
    re.compile(r"(?<=peak )[\d,.]+ ?[kKMGT]?i?B"),
    re.compile(r"(?<=process )\d+"),
    re.compile(r"(?<=or cgroup allows )[\d.]+ [KMG]iB"),
]


def normalized(text):
    for pattern in VOLATILE:
        text = pattern.sub("#", text)
    return [re.sub(r" +", " ", line).rstrip() for line in text.splitlines()]


def matches(stated, printed):
    """Whether `printed` is `stated`, in which LEFT_OUT stands for any lines."""
    if not stated:
        return not printed
    if stated[0] == LEFT_OUT:
        return any(matches(stated[1:], printed[i:]) for i in range(len(printed) + 1))
    return bool(printed) and stated[0] == printed[0] and matches(stated[1:], printed[1:])


def commands_of(screen):
    """[(command, stated output)], in order."""
    commands = []
    for line in screen.splitlines():
        if line.startswith("$ "):
            commands.append((line[2:], []))
        elif commands and line.startswith("> ") and not commands[-1][1]:
            commands[-1] = (f"{commands[-1][0]}\n{line[2:]}", [])
        elif commands:
            commands[-1][1].append(line)
        else:
            sys.exit(f"a screen begins with {line!r} instead of a command")
    return commands


def run(command, folder, binary):
    environment = {
        "PATH": f"{binary.parent}:/usr/bin:/bin",
        "HOME": folder,
        "LANG": "C.UTF-8",
        "QUARRY_LOG": "error",
    }
    done = subprocess.run(["bash", "-c", command], cwd=folder, env=environment, stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=120, text=True)
    return done.stdout.replace(folder, FOLDER)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("binary", type=pathlib.Path)
    parser.add_argument("document", type=pathlib.Path)
    parser.add_argument("--update", action="store_true")
    arguments = parser.parse_args()
    binary = arguments.binary.resolve()
    text = arguments.document.read_text()
    failures = 0

    with tempfile.TemporaryDirectory(prefix="quarry-screens-") as folder:

        def held(match):
            nonlocal failures
            blocks = []
            for command, stated in commands_of(match.group(1)):
                printed = run(command, folder, binary)
                if not matches(normalized("\n".join(stated)), normalized(printed)):
                    failures += 1
                    print(f"$ {command}")
                    print("\n".join(difflib.unified_diff(normalized("\n".join(stated)), normalized(printed),
                                                         str(arguments.document), "printed", lineterm="")))
                    stated = printed.splitlines()
                blocks.append("\n".join(["$ " + command.replace("\n", "\n> "), *stated]))
            return "```console\n" + "\n".join(blocks) + "\n```"

        updated, screens = SCREEN.subn(held, text)
    if screens == 0:
        sys.exit(f"{arguments.document}: no screens")
    if arguments.update:
        arguments.document.write_text(updated)
    elif failures:
        sys.exit(f"{arguments.document}: {failures} of its commands print something else; "
                 f"{os.path.relpath(__file__)} --update writes what they print")
    print(f"{arguments.document}: {screens} screens are as printed")


if __name__ == "__main__":
    main()
