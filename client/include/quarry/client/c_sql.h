/* Quarry's C interface: SQL (quarry/client/sql.h says what it does, docs/cli.md lists the tables). Part of
 * quarry.h, which is what programs include. Since version 1.1. */
#ifndef QUARRY_CLIENT_C_SQL_H_
#define QUARRY_CLIENT_C_SQL_H_

#include "quarry.h"

#ifdef __cplusplus
extern "C" {
#endif
/* NOLINTBEGIN(readability-identifier-naming): names as C has them */

/* ---- connections */

/* A connection has a transaction of its own, and tables that its statements make. It and its cursors are for
 * one thread at a time. Free cursors before their connection, and the connection before its store. */
typedef struct quarry_sql quarry_sql;
/* The rows of a statement, forward only. */
typedef struct quarry_cursor quarry_cursor;

struct quarry_sql_options {
  size_t size;
  int write;              /* UPDATE and INSERT OR REPLACE reach the database */
  double timeout_seconds; /* for one statement, from its first row on: QUARRY_CANCELLED; 0: none */
};
/* `options` may be null. */
int quarry_sql_open(quarry_store* store, const struct quarry_sql_options* options, quarry_sql** sql);
void quarry_sql_free(quarry_sql* sql);
/* Callable from any thread: what the connection has under way ends soon, with QUARRY_CANCELLED. Its cursors
 * stay cancelled; the next quarry_sql_query or quarry_sql_run works as before. */
void quarry_sql_interrupt(quarry_sql* sql);

struct quarry_column_info {
  const char* name;
  const char* type;
  int hidden; /* SELECT * leaves it out: an argument, or what takes long to tell */
};
/* The tables, and the functions that give one; null beyond the last. */
const char* quarry_sql_table(const quarry_sql* sql, size_t table);
const struct quarry_column_info* quarry_sql_column(const quarry_sql* sql, size_t table, size_t column);

/* ---- statements */

enum quarry_value_type {
  QUARRY_NULL = 0,
  QUARRY_INTEGER = 1,
  QUARRY_REAL = 2,
  QUARRY_TEXT = 3,
  QUARRY_BLOB = 4
};
/* A parameter: the field of its type counts. Texts need no end, and are copied as blobs are. */
struct quarry_value {
  int type;
  int64_t integer;
  double real;
  const void* data; /* of a text or blob */
  size_t bytes;
};
/* Prepares the one statement of `text`, with `parameters` for ?1, ?2, ... QUARRY_INVALID_ARGUMENT when there
 * are more statements, or another number of parameters. Nothing has run yet. */
int quarry_sql_query(quarry_sql* sql, const char* text, const struct quarry_value* parameters,
                     size_t parameter_count, quarry_cursor** cursor);
/* The same, on a connection that goes with the cursor. `options` may be null. */
int quarry_query(quarry_store* store, const char* text, const struct quarry_value* parameters,
                 size_t parameter_count, const struct quarry_sql_options* options, quarry_cursor** cursor);
/* Runs the statements of `script` one after the other. `visit` is called with each of them before its first
 * row and takes as many rows as it likes; it must neither free nor keep the cursor. It returns 0, or a code
 * that ends the script and that this function then returns. Null: each statement runs, rows are dropped. */
typedef int (*quarry_visit)(void* context, quarry_cursor* cursor);
int quarry_sql_run(quarry_sql* sql, const char* script, quarry_visit visit, void* context);

/* ---- rows */

void quarry_cursor_free(quarry_cursor* cursor);
/* Moves to the first row, then to the next; `more` is 0 behind the last. A statement without rows runs in the
 * first call. */
int quarry_cursor_next(quarry_cursor* cursor, int* more);
size_t quarry_cursor_column_count(const quarry_cursor* cursor);                    /* 0: it has no rows */
const char* quarry_cursor_column_name(const quarry_cursor* cursor, size_t column); /* null beyond the last */

/* The values of the row that quarry_cursor_next came to, until its next call. Without a row, and beyond the
 * last column, the value is NULL. */
int quarry_cursor_type(const quarry_cursor* cursor, size_t column);      /* enum quarry_value_type */
int64_t quarry_cursor_int64(const quarry_cursor* cursor, size_t column); /* 0 for another type */
double quarry_cursor_double(const quarry_cursor* cursor, size_t column); /* integers too; else 0 */
/* A blob or a text as it is; null and 0 bytes for another type. `bytes` may be null. */
const void* quarry_cursor_blob(const quarry_cursor* cursor, size_t column, uint64_t* bytes);
/* The value as SQLite writes it, with a zero byte behind its `bytes` (may be null); null for NULL. */
const char* quarry_cursor_text(quarry_cursor* cursor, size_t column, uint64_t* bytes);

/* NOLINTEND(readability-identifier-naming) */
#ifdef __cplusplus
}
#endif

#endif /* QUARRY_CLIENT_C_SQL_H_ */
