/* Quarry's C interface: what there is, snapshots, rows, embeddings, counters. Part of quarry.h, which is what
 * programs include. */
#ifndef QUARRY_CLIENT_C_TABLES_H_
#define QUARRY_CLIENT_C_TABLES_H_

#include "quarry.h"

#ifdef __cplusplus
extern "C" {
#endif
/* NOLINTBEGIN(readability-identifier-naming): names as C has them */

/* ---- what there is */

typedef struct quarry_description quarry_description;
enum quarry_element_type {
  QUARRY_FLOAT32 = 1,
  QUARRY_FLOAT16 = 2,
  QUARRY_BFLOAT16 = 3,
  QUARRY_INT8 = 4, /* with a scale a row */
  QUARRY_UINT8 = 5,
  QUARRY_INT32 = 6,
  QUARRY_INT64 = 7
};
struct quarry_table_info {
  const char* name;
  uint64_t row_count, dim;
  uint64_t row_bytes; /* of a row as it is encoded */
  int element_type;
};
struct quarry_topology_info {
  const char* name;
  uint64_t node_count, edge_count;
};
struct quarry_layout_info {
  const char* name;
  uint64_t batch_count, seed;
  uint32_t batch_size, epochs;
  int servable;
};
struct quarry_embedding_info {
  const char* name;
  uint64_t row_count;
  uint32_t dim, state_dim;
};
int quarry_describe(quarry_store* store, quarry_description** description);
void quarry_description_free(quarry_description* description);
uint64_t quarry_node_count(const quarry_description* description);
uint64_t quarry_class_count(const quarry_description* description);
/* Null beyond the last. */
const struct quarry_table_info* quarry_table(const quarry_description* description, size_t i);
const struct quarry_topology_info* quarry_topology(const quarry_description* description, size_t i);
const struct quarry_layout_info* quarry_layout(const quarry_description* description, size_t i);
const struct quarry_embedding_info* quarry_embedding(const quarry_description* description, size_t i);

/* ---- snapshots */

int quarry_take_snapshot(quarry_store* store, quarry_snapshot** snapshot);
void quarry_snapshot_free(quarry_snapshot* snapshot);
uint64_t quarry_snapshot_timestamp(const quarry_snapshot* snapshot);

/* ---- rows */

typedef struct quarry_rows quarry_rows;
/* `snapshot` may be null: as things are. */
int quarry_lookup(quarry_store* store, const char* table, const uint32_t* ids, size_t count,
                  const quarry_snapshot* snapshot, quarry_rows** rows);
void quarry_rows_free(quarry_rows* rows);
uint64_t quarry_rows_count(const quarry_rows* rows);
uint32_t quarry_rows_dim(const quarry_rows* rows);
int quarry_rows_element_type(const quarry_rows* rows);
/* As the table encodes them, one behind the other. */
const void* quarry_rows_data(const quarry_rows* rows, uint64_t* bytes);
/* Decoded to count x dim floats. QUARRY_INVALID_ARGUMENT for rows of integers, or another number of floats.
 */
int quarry_rows_float32(const quarry_rows* rows, float* out, size_t count);
/* Since version 1.2: the row of ids[i] to out + i * out_stride_bytes (0: one row behind the other). Ids come in
 * any order, and as often as they like: a row is read once. `element_type`: 0 as they are stored,
 * QUARRY_FLOAT32 decoded; QUARRY_INVALID_ARGUMENT for another, and for a stride shorter than a row. */
int quarry_lookup_into(quarry_store* store, const char* table, const uint32_t* ids, size_t count,
                       const quarry_snapshot* snapshot, int element_type, void* out,
                       uint64_t out_stride_bytes);

struct quarry_put_rows {
  const char* table;
  const uint64_t* ids;
  size_t count;
  const void* rows;   /* as the table encodes them, one behind the other; null with row_bytes 0 */
  uint32_t row_bytes; /* 0: the rows are deleted */
};
/* Visible together, under the timestamp that is set; on disk by then, if `sync`. */
int quarry_put(quarry_store* store, const struct quarry_put_rows* tables, size_t table_count, int sync,
               uint64_t* timestamp);
/* Since version 1.10: nodes and edges that come or go. Zeros: nothing of it. */
struct quarry_graph_change {
  size_t size;          /* sizeof(struct quarry_graph_change) */
  const char* topology; /* null: "graph" */
  /* Nodes to be added, behind the last one: first_node is the number of nodes so far, of which QUARRY_BUSY tells that it is
   * another one by now. Their rows are among those that are put; without any, features are zeros, the label is -1 and the
   * split none. */
  uint64_t first_node, nodes;
  const char* const* names; /* of all of them, where nodes have names; else null */
  size_t name_count;
  const uint32_t *sources, *destinations; /* of edges */
  const float* weights;                   /* null: 1 each, where edges have weights */
  size_t edge_count;
  int remove; /* the edges go */
  /* Nodes that go, with all edges of the topology, label and split, and rows that read as zeros; their ids stay. */
  const uint32_t* removed_nodes;
  size_t removed_node_count;
  uint32_t relation; /* of all the edges, where there are several */
  const char*
      node_type; /* of all added nodes, where nodes have types; else null. Their rows of its table are behind its others */
};
struct quarry_graph_changed {
  uint64_t timestamp;
  uint64_t added, removed;  /* edges, reverses included */
  uint64_t present, absent; /* edges to be added that were there, and to be removed that were not */
  uint64_t first_node, nodes_added;
  uint64_t node_count, edge_count; /* afterwards */
  uint64_t runs;                   /* of the topology afterwards */
  uint64_t nodes_removed;
};
/* One commit of all of it, with rows of nodes that are there or are added; on disk when it returns. `changed` may be
 * null. */
int quarry_change_graph(quarry_store* store, const struct quarry_graph_change* change,
                        const struct quarry_put_rows* tables, size_t table_count,
                        struct quarry_graph_changed* changed, size_t changed_bytes);
/* Since version 1.11: a commit in pieces, for more than memory holds. What is added is on disk, where nobody sees it, until
 * all of it is committed: one at a time in a database (QUARRY_BUSY). After an error all of it is forgotten, and the same
 * error is given from then on. For one thread at a time; freed before its store. */
typedef struct quarry_large_put quarry_large_put;
/* `graph`: topology, first_node, nodes and node_type, of all pieces, and names, edges and removed nodes that come first; null:
 * rows alone come. */
int quarry_begin_put(quarry_store* store, const struct quarry_graph_change* graph, quarry_large_put** put);
/* As quarry_put has them; of two writes to a row the later one counts. */
int quarry_put_more(quarry_large_put* put, const struct quarry_put_rows* tables, size_t table_count);
/* More names, edges and removed nodes; what all pieces say alike may be left out. QUARRY_USAGE where the put began without a
 * graph, or with another one. */
int quarry_change_more(quarry_large_put* put, const struct quarry_graph_change* change);
/* On disk when it returns; call it once. `changed` may be null; where rows alone came, it has a timestamp and zeros. */
int quarry_commit_put(quarry_large_put* put, struct quarry_graph_changed* changed, size_t changed_bytes);
void quarry_large_put_free(quarry_large_put* put); /* forgets it, unless it was committed */
/* One row of a float type, to be put. QUARRY_INVALID_ARGUMENT when `row` has other bytes than such a row. */
int quarry_encode_row(int element_type, const float* values, uint32_t dim, void* row, size_t row_bytes);

/* ---- embeddings */

typedef struct quarry_embedding_rows quarry_embedding_rows;
struct quarry_embedding_arrays {
  uint64_t row_count;
  uint32_t dim, state_dim;
  const uint64_t* ids;
  const int64_t* timestamps; /* of the last write, -1: never */
  float* values;             /* row_count x dim, the caller's to change */
  float* state;              /* row_count x state_dim, too */
};
/* `ids` ascending, each once. The rows are the caller's alone, and may outlive the store. */
int quarry_read_embeddings(quarry_store* store, const char* table, const uint64_t* ids, size_t count,
                           quarry_embedding_rows** rows);
void quarry_embedding_rows_free(quarry_embedding_rows* rows);
int quarry_embedding_rows_get(quarry_embedding_rows* rows, struct quarry_embedding_arrays* arrays,
                              size_t arrays_bytes);
/* All or none. `timestamp` is -1, and nothing happened, when `stale_rows` rows were written since they were
 * read. */
int quarry_commit_embeddings(quarry_store* store, const char* const* tables,
                             quarry_embedding_rows* const* rows, size_t count, int64_t* timestamp,
                             uint64_t* stale_rows);

/* ---- counters */

typedef struct quarry_counters quarry_counters;
int quarry_stats(quarry_store* store, quarry_counters** counters);
int quarry_stream_stats(quarry_stream* stream, quarry_counters** counters);
void quarry_counters_free(quarry_counters* counters);
size_t quarry_counters_count(const quarry_counters* counters);
const char* quarry_counter_name(const quarry_counters* counters, size_t i); /* null beyond the last */
double quarry_counter_value(const quarry_counters* counters, size_t i);

/* NOLINTEND(readability-identifier-naming) */
#ifdef __cplusplus
}
#endif

#endif /* QUARRY_CLIENT_C_TABLES_H_ */
