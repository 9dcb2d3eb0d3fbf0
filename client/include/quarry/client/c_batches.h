/* Quarry's C interface: blocks, streams, and their batches. Part of quarry.h, which is what programs include. */
#ifndef QUARRY_CLIENT_C_BATCHES_H_
#define QUARRY_CLIENT_C_BATCHES_H_

#include "quarry.h"

#ifdef __cplusplus
extern "C" {
#endif
/* NOLINTBEGIN(readability-identifier-naming): names as C has them */

/* ---- batches */

typedef struct quarry_batch quarry_batch;
enum quarry_direction { QUARRY_IN = 0, QUARRY_OUT = 1, QUARRY_BOTH = 2 };
/* The arrays of a batch (docs/protocol.md, "Batch"); null where there is none. */
struct quarry_batch_arrays {
  uint64_t index;        /* position in the pass */
  uint32_t hop_count;    /* hop_offsets has one more */
  uint32_t seed_count;   /* labels */
  uint32_t target_count; /* indptr has one more */
  uint32_t node_count;
  uint64_t edge_count;
  const uint32_t* hop_offsets;
  const uint32_t* indptr;
  const uint32_t* indices;
  const uint32_t* nodes;
  const int64_t* labels;
  const uint32_t* slots; /* the row of each node; null: node i has row i */
  const void* rows;      /* row r is at rows + r * row_stride_bytes */
  uint64_t row_count;
  uint64_t row_stride_bytes;
  uint32_t dim;
  int element_type;
  /* Since version 1.3: by edge, its position in the order of quarry_read_edges. Of blocks and live streams
   * along QUARRY_IN; streams have to be asked for them, and a server of an earlier Quarry samples none. */
  const uint64_t* edge_ids;
  /* Since version 1.10: by edge, its relation, where fanouts are by type of edges; those of a node's edges ascend. */
  const uint16_t* relations;
};
/* A block of `seeds`, each given once, without labels and features. */
int quarry_sample(quarry_store* store, const char* topology, const uint32_t* seeds, size_t seed_count,
                  const uint32_t* fanouts, size_t fanout_count, int direction, uint64_t stream_seed,
                  quarry_batch** batch);
void quarry_batch_free(quarry_batch* batch);
/* `arrays_bytes`: sizeof *arrays, as the caller knows it. */
int quarry_batch_get(const quarry_batch* batch, struct quarry_batch_arrays* arrays, size_t arrays_bytes);
/* Since version 1.2: the row of each node, in the order of `nodes`, to `out`; the row of node i begins at
 * out + i * out_stride_bytes (0: one row behind the other). `element_type`: 0 as they are stored,
 * QUARRY_FLOAT32 decoded. Every byte is read once, by `threads` threads (0: one for two processors, as the
 * stream's want the others). QUARRY_INVALID_ARGUMENT: another type, a stride shorter than a row, a batch without features. */
int quarry_batch_gather(const quarry_batch* batch, int element_type, void* out, uint64_t out_stride_bytes,
                        uint32_t threads);
/* Since version 1.10: the same of nodes of one type, of a batch with fanouts by type of edges, which has no others. The type
 * is counted as SQL's table node_types lists them; `positions` are places in `nodes`, of nodes of the type.
 * QUARRY_INVALID_ARGUMENT for a type that is not there or has no rows, and for a place beyond the batch's nodes. */
int quarry_batch_gather_type(const quarry_batch* batch, uint32_t node_type, const uint32_t* positions,
                             size_t count, int element_type, void* out, uint64_t out_stride_bytes,
                             uint32_t threads);

/* Since version 1.8: memory of the device that a stream's batches go to (quarry_stream_options), the caller's; null:
 * not wanted. Sizes are those of quarry_batch_get, whose arrays stay in memory, but rows and slots, which are null. */
struct quarry_device_arrays {
  size_t size;
  void* x;                 /* [nodes x dim], one row behind the other */
  int element_type;        /* of x: 0 as rows are stored, QUARRY_FLOAT32 decoded */
  int padding;             /* unused */
  uint64_t x_stride_bytes; /* of rows as they are stored; 0: a row's bytes */
  int64_t* edge_index;     /* [2 x edges]: neighbors, then the nodes they were drawn for, as local ids */
  int64_t* nodes;
  int64_t* labels;   /* where the batch has labels */
  int64_t* edge_ids; /* where it has them */
};
/* Enqueues all of it on `stream` (a CUstream, of the device's primary context; null: the default one) and waits for
 * nothing: the memory is ready for what is enqueued there afterwards. Once a batch, before it is freed, in the order in
 * which its stream gave them; the batch may be freed at once. QUARRY_USAGE for a batch in memory, and the second time. */
int quarry_batch_to_device(quarry_batch* batch, const struct quarry_device_arrays* arrays, void* stream);

/* ---- streams */
typedef struct quarry_stream quarry_stream;
struct quarry_live_spec {
  size_t size;
  const char* feature_table; /* null: "feature"; since version 1.10 "": live batches have no rows */
  const char* topology;      /* null: "graph" */
  int direction;
  const uint32_t* fanouts; /* null: 10, 10 */
  size_t fanout_count;
  uint32_t batch_size; /* 0: 1024 */
  uint64_t cache_bytes;
  uint64_t seed;
  int replace;  /* since version 1.2: neighbors are drawn with replacement */
  int padding;  /* as before version 1.3; unused */
  int edge_ids; /* since version 1.3: batches say which edges were drawn. QUARRY_UNSUPPORTED of a direction
                   other than QUARRY_IN, and of what is packed, whose layout does not keep them */
  int padding_of_edge_ids; /* as before version 1.7; unused */
  /* Since version 1.7. */
  const char* sampler; /* null: "neighbor"; "labor": nodes of a hop choose the same neighbors if they can */
  uint32_t batch_dependency; /* of labor: batches that a node keeps its number for; 0: each has its own */
  int weighted;              /* neighbors are drawn with probability proportional to the weights of edges */
  /* Since version 1.10, of a graph with types: for each hop and each relation, in the order of their ids, how many
   * neighbors a node is given by edges of that type; null: edges of all types are alike. `fanouts` then bounds what a
   * node is given in a hop by all types together. QUARRY_UNSUPPORTED of what is packed, and on a GPU. */
  const uint32_t* relation_fanouts;
  size_t relation_fanout_count;
};
/* Since version 1.10: a block as quarry_sample's, by the spec's topology, direction, fanouts, replace, weighted, edge_ids
 * and relation_fanouts, with which it has `relations`. QUARRY_ALL_NEIGHBORS, of live streams, too: all of a node's, in `fanouts`
 * as many as relation_fanouts come to. QUARRY_UNSUPPORTED where a node has more than 2^20,
 * of other draws, and of what a server of an earlier Quarry does not know. */
#define QUARRY_ALL_NEIGHBORS 0xffffffffU
int quarry_sample_by(quarry_store* store, const struct quarry_live_spec* spec, const uint32_t* seeds,
                     size_t seed_count, uint64_t stream_seed, quarry_batch** batch);
enum quarry_stream_mode { QUARRY_EXCLUSIVE = 0, QUARRY_SHARED = 1, QUARRY_SPLIT = 2 };
struct quarry_stream_options {
  size_t size;
  int mode;
  const char* group; /* shared and split, which are for clients of a server */
  uint32_t members;  /* of the group; 0: 1 */
  const quarry_snapshot* snapshot;
  /* Since version 1.8: batches go to a GPU, of a database in this process. */
  int device;                  /* 1 + its ordinal, as the driver counts; 0: batches stay in memory */
  int padding_of_device;       /* unused */
  uint64_t device_bytes;       /* the most that is taken of its memory; 0: half of what is free */
  uint64_t device_cache_bytes; /* 1 + the part of these for rows that stay; 0: as many as there is room for */
  /* Since version 1.9. */
  int device_samples;            /* live batches are sampled there, from lists that lie there then */
  int padding_of_device_samples; /* unused */
};
/* `options` may be null, and `spec` below. */
int quarry_open_live(quarry_store* store, const struct quarry_live_spec* spec,
                     const struct quarry_stream_options* options, quarry_stream** stream);
/* `other`: what passes over other seeds than the layout's are sampled with; null: they are refused. */
int quarry_open_planned(quarry_store* store, const char* layout, const struct quarry_live_spec* other,
                        const struct quarry_stream_options* options, quarry_stream** stream);
/* Since version 1.1: fresh samples every epoch, which are planned while the one before trains. */
enum quarry_packing { QUARRY_PACK_CHEAPER = 0, QUARRY_PACK_ALWAYS = 1, QUARRY_PACK_NEVER = 2 };
struct quarry_superbatch_spec {
  size_t size;
  const struct quarry_live_spec* live; /* null: its defaults */
  const char* policy;                  /* of the cache; null: "belady" */
  const char* seed_order;              /* null: "random" */
  int packing;
  uint64_t disk_bytes; /* 0: no limit */
};
int quarry_open_superbatch(quarry_store* store, const struct quarry_superbatch_spec* spec,
                           const struct quarry_stream_options* options, quarry_stream** stream);
/* Since version 1.10: batches of splits, made of the parts of a stored partitioning (`quarry partition build`) that are
 * in memory: nothing of each node or edge stays there. Rows, labels and splits are those of the partitioning's build. */
struct quarry_partitioned_spec {
  size_t size;
  const struct quarry_live_spec* live; /* what batches are; null: its defaults. Its cache does not count */
  const char* partitioning;            /* null: "default" */
  uint32_t buffer;                     /* parts that are held at a time; 0: as many as there is memory for */
  uint32_t logical; /* as many take turns as one; 0: all parts, so that one is swapped at a time */
};
/* QUARRY_UNSUPPORTED of a snapshot, of edge ids, and of passes over given seeds. */
int quarry_open_partitioned(quarry_store* store, const struct quarry_partitioned_spec* spec,
                            const struct quarry_stream_options* options, quarry_stream** stream);
void quarry_stream_free(quarry_stream* stream);
uint32_t quarry_stream_slots(const quarry_stream* stream); /* batches that may be held at a time */
uint32_t quarry_stream_feature_dim(const quarry_stream* stream);
uint64_t quarry_stream_timestamp(const quarry_stream* stream);

/* Called with each batch of a pass, which it may read. Must not throw, nor call the stream. */
typedef void (*quarry_prepare)(const quarry_batch* batch, void* context);
enum quarry_split { QUARRY_TRAIN = 1, QUARRY_VALID = 2, QUARRY_TEST = 3 };
struct quarry_pass {
  size_t size;
  int split;             /* used when seeds is null; 0: train */
  const uint32_t* seeds; /* each used once */
  size_t seed_count;
  int no_shuffle;
  int ordered;
  uint64_t pass; /* its number: names the random streams */
  /* Since version 1.6: what the caller wants made of each batch (null: nothing), ahead of the call that takes it:
   * by the thread of quarry_next_within and quarry_begin_next, before the batch is given out; quarry_next, where
   * none was begun, does it itself. `context` is used until another pass has been started, or the stream freed. */
  quarry_prepare prepare;
  void* prepare_context;
};
int quarry_start_pass(quarry_stream* stream, const struct quarry_pass* pass, uint64_t* batch_count);
int quarry_next(quarry_stream* stream, quarry_batch** batch); /* null behind the last */
/* Since version 1.2: the same, waiting for at most so many seconds (a negative number: without a limit).
 * QUARRY_TIMED_OUT when they have passed: nothing is lost, and the next call goes on waiting for the same
 * batch. A thread of the stream's own asks meanwhile, so that freeing a stream, quarry_start_pass and
 * quarry_stream_stats wait for the batch that is under way. */
int quarry_next_within(quarry_stream* stream, double seconds, quarry_batch** batch);
/* Since version 1.3: begins the next batch on that thread, and waits for nothing; the call that asks for it then
 * finds it under way. Not while as many batches are held as quarry_stream_slots says. */
int quarry_begin_next(quarry_stream* stream);
/* Since version 1.2, from any thread: the quarry_next_within that waits, or else the next one of this pass,
 * ends at once with QUARRY_CANCELLED. The one after it goes on with the same batch. */
void quarry_stream_cancel(quarry_stream* stream);

/* NOLINTEND(readability-identifier-naming) */
#ifdef __cplusplus
}
#endif

#endif /* QUARRY_CLIENT_C_BATCHES_H_ */
