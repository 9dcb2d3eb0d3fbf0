"""Runs the scripts of a folder through Python's own SQLite with the extension.

    run_scripts.py EXTENSION DATABASE FOLDER

The database is that of tests/sql/sql_database.h. Prints what differs; exit code 1 when anything does.
"""
import pathlib
import re
import sqlite3
import sys


def read_cases(path):
    cases = []
    for text in re.split(r"(?m)^-- name: ", path.read_text())[1:]:
        head, _, result = text.partition("\n----")
        name, _, sql = head.partition("\n")
        kind, _, lines = result.partition("\n")
        error = kind.removeprefix(" error: ") if kind.startswith(" error:") else None
        lines = lines.rstrip("\n").split("\n") if lines.strip("\n") else []
        cases.append((f"{path.name}: {name}", sql, error, lines))
    return cases


def statements(sql):
    text = ""
    for line in sql.splitlines(keepends=True):
        text += line
        if sqlite3.complete_statement(text):
            yield text
            text = ""
    if text.strip():
        yield text


def field(connection, value):
    if value is None:
        return ""
    if isinstance(value, bytes):
        return value.hex()
    text = connection.execute("SELECT CAST(? AS TEXT)", (value,)).fetchone()[0]
    return '"' + text.replace('"', '""') + '"' if re.search('[,"\r\n]', text) else text


def run(connection, sql):
    lines = []
    for statement in statements(sql):
        cursor = connection.execute(statement)
        if cursor.description is None:
            continue
        lines.append(",".join(field(connection, column[0]) for column in cursor.description))
        lines += [",".join(field(connection, value) for value in row) for row in cursor]
    return lines


def main(extension, database, folder):
    connection = sqlite3.connect(":memory:", isolation_level=None)
    connection.enable_load_extension(True)
    connection.execute("SELECT load_extension(?)", (extension,))
    connection.execute("CREATE VIRTUAL TABLE g USING quarry('%s')" % database.replace("'", "''"))
    ran = differ = 0
    for path in sorted(pathlib.Path(folder).glob("*.sql")):
        for name, sql, error, lines in read_cases(path):
            if "\n-- only: quarry" in "\n" + sql:
                continue
            ran += 1
            try:
                found, fault = run(connection, sql), None
            except sqlite3.Error as exception:
                found, fault = [], str(exception)
            fits = found == lines and fault is None if error is None else fault is not None and error in fault
            if not fits:
                differ += 1
                print(f"{name}:\n  expected {lines if error is None else 'error: ' + error}\n"
                      f"  found    {found if fault is None else 'error: ' + fault}")
    print(f"{ran} statements, {differ} differ")
    return 0 if differ == 0 and ran > 0 else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
