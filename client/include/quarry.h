/* Quarry's C interface: the calls of client::Store (quarry/client/store.h) for any language, C99.
 *
 * A database in this process, or a server's: `quarry_open("path/to/db")` (libquarry alone),
 * `quarry_open("unix:/run/quarry.sock")` (libquarry and libquarry_remote).
 *
 * Every function that can fail returns a code, 0 when it did not; quarry_last_error says why, in words, what
 * the last failed call of this thread failed for. Results come through pointers, which are set only on
 * success.
 *
 * Handles are opaque. What a handle gave out must be freed before it: batches before their stream; streams,
 * snapshots, rows before their store. Freeing null does nothing. Arrays and strings belong to the handle that
 * they were asked of, and are valid until it is freed. A store may be used by any number of threads at a
 * time, a stream and an SQL connection by one; everything else may be read by any.
 *
 * Structs that a caller fills begin with their size, so that later versions can add fields at their ends:
 *   struct quarry_live_spec live = {.size = sizeof live, .fanouts = fanouts, .fanout_count = 2};
 * Fields that are zero have their defaults. The interface has a version: a library of the same major version
 * serves programs that were compiled against an earlier minor one. */
#ifndef QUARRY_H_
#define QUARRY_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif
/* NOLINTBEGIN(readability-identifier-naming): names as C has them */

/* major << 16 | minor
 *   1.0  stores, tables, embeddings, blocks, streams
 *   1.1  superbatches, SQL (c_sql.h), edges and training runs (c_training.h)
 *   1.2  rows into the caller's memory, a next batch that is waited for so long, imports, layouts and upkeep
 *        (c_admin.h), sampling with replacement
 *   1.3  ids of sampled edges; making and dropping embedding tables
 *   1.4  the upkeep of c_admin.h over a server
 *   1.5  labels numbered by an import
 *   1.6  what is made of a batch ahead of the call that takes it
 *   1.7  LABOR, batches that depend on each other, weights of edges
 *   1.8  batches on a GPU
 *   1.9  batches that are sampled on it
 *   1.10 nodes and edges that come and go; batches of the parts of a graph; types of nodes and edges
 *   1.11 commits in pieces */
#define QUARRY_ABI_VERSION 0x0001000b
uint32_t quarry_abi_version(void); /* of the library */

/* Codes, as docs/protocol.md explains them. */
enum quarry_code {
  QUARRY_OK = 0,
  QUARRY_USAGE = 1,
  QUARRY_INVALID_ARGUMENT = 2,
  QUARRY_NOT_FOUND = 3,
  QUARRY_ALREADY_EXISTS = 4,
  QUARRY_BUSY = 5,
  QUARRY_IO_ERROR = 6,
  QUARRY_NO_SPACE = 7,
  QUARRY_OUT_OF_BUDGET = 8,
  QUARRY_CORRUPTION = 9,
  QUARRY_UNSUPPORTED = 10,
  QUARRY_CANCELLED = 11,
  QUARRY_INTERNAL = 12,
  QUARRY_TIMED_OUT = 64 /* of this interface alone: quarry_next_within */
};
const char* quarry_last_error(void); /* of this thread; "" before the first; valid until its next failure */

/* ---- stores */

typedef struct quarry_store quarry_store;
typedef struct quarry_snapshot quarry_snapshot; /* a point in time of one */
struct quarry_open_options {
  size_t size;
  uint64_t memory_bytes;     /* 0: as much as is right */
  uint64_t memory_bytes_min; /* remote: with less, QUARRY_OUT_OF_BUDGET */
  double wait_seconds;       /* remote: for that much to become free */
  double timeout_seconds;    /* remote: of a call; 0: 60 */
  int inline_only;           /* remote: no shared memory */
};
/* `options` may be null. */
int quarry_open(const char* address, const struct quarry_open_options* options, quarry_store** store);
void quarry_close(quarry_store* store);
int quarry_ping(quarry_store* store);

/* NOLINTEND(readability-identifier-naming) */
#ifdef __cplusplus
}
#endif

#include "quarry/client/c_batches.h"  /* blocks, streams, batches */
#include "quarry/client/c_sql.h"      /* SQL */
#include "quarry/client/c_tables.h"   /* what there is, rows, snapshots, embeddings, counters */
#include "quarry/client/c_training.h" /* edges, training runs */

#include "quarry/client/c_admin.h" /* imports, layouts, upkeep: with types of the others */

#endif /* QUARRY_H_ */
