/* Quarry's C interface: making databases, and their upkeep. Part of quarry.h, which is what programs include.
 * Since version 1.2; quarry_import in libquarry alone, the others since version 1.4 over a server, too.
 *
 * Other threads may read and write meanwhile; what two of these calls would do at the same time to one table
 * or layout, one of them refuses with QUARRY_BUSY. A server has one of them at a time but for those of
 * embedding tables, for whoever asks (QUARRY_BUSY says which), however long it takes. A call that fails or is
 * ended, as the end of its process ends it, leaves the database as it was. */
#ifndef QUARRY_CLIENT_C_ADMIN_H_
#define QUARRY_CLIENT_C_ADMIN_H_

#include "quarry.h"

#ifdef __cplusplus
extern "C" {
#endif
/* NOLINTBEGIN(readability-identifier-naming): names as C has them */

/* Called now and then, from any thread but by one at a time, with the bytes or items done and in all (0:
 * unknown). The call that it is for ends with QUARRY_CANCELLED once this returns anything but 0. */
typedef int (*quarry_progress)(void* context, const char* phase, uint64_t done, uint64_t total);

/* Options of `quarry import` (docs/cli.md says what each does, and which sources there are). */
struct quarry_import_options {
  size_t size;
  uint64_t memory_bytes; /* for buffers and sorting; 0: 1 GiB */
  uint64_t node_count;   /* 0: as the source tells */
  uint64_t feature_dim;  /* of sparse features, and of those without a header; 0: as the source tells */
  int feature_type;      /* enum quarry_element_type, the first four; 0: as in the source */
  int undirected, add_reverse, both_directions, deduplicate, allow_nan;
  int bfloat16;         /* two-byte unsigned features are bfloat16 */
  const char* raw_type; /* of features without a header */
  const char *edges, *features, *labels, *train, *valid,
      *test;                /* files instead of the source's; null: its own */
  quarry_progress progress; /* may be null */
  void* context;
  int relabel; /* since version 1.5: number the labels from 0; the table label_code has what they were */
  int types;   /* since version 1.10: of MAG240M and IGB all types of nodes and edges, not the papers alone */
};
/* Makes the database `path`, whole or not at all. `options` may be null. QUARRY_ALREADY_EXISTS,
 * QUARRY_NOT_FOUND, QUARRY_INVALID_ARGUMENT (the source, by file and position), QUARRY_NO_SPACE. */
int quarry_import(const char* path, const char* source, const struct quarry_import_options* options);

/* Reports are counters (quarry_counters_free); `report` may be null. */

struct quarry_layout_spec {
  size_t size;
  const char* name;                    /* null: "default" */
  const struct quarry_live_spec* live; /* batches, and the rows that stay in memory; null: its defaults */
  uint32_t epochs;                     /* sampled ahead; 0: 1 */
  const char* policy;                  /* null: "belady" */
  const char* seed_order;              /* null: "random" */
  uint64_t disk_bytes;                 /* 0: no limit */
  uint32_t threads;                    /* 0: one a processor */
  int resume;                          /* take over what is whole of a build that was interrupted */
  quarry_progress progress;            /* may be null */
  void* context;
};
/* Packs what training will read, in the order of its use, for quarry_open_planned. A layout of the name is
 * replaced. Not while a stream is open. `spec` may be null. QUARRY_INVALID_ARGUMENT for an unknown policy or
 * seed order. */
int quarry_build_layout(quarry_store* store, const struct quarry_layout_spec* spec, quarry_counters** report);
int quarry_drop_layout(quarry_store* store, const char* name);

/* Since version 1.10: cuts the graph into parts for quarry_open_partitioned, and stores them. One of the name is
 * replaced, once the new one is whole. `options` may be null. QUARRY_OUT_OF_BUDGET says what the method would take. */
struct quarry_partitioning_options {
  size_t size;
  const char* name;     /* null: "default" */
  const char* topology; /* null: "graph" */
  const char* table;    /* whose rows parts have; null: "feature", where there is one */
  const char* method; /* null: "grem"; "bgl", "metis", "random", "kept" (the parts of the one of the name) */
  uint32_t parts;     /* 0: as many as the device reads well, by the graph's size */
  int training_first; /* training nodes get parts of their own, which stay in memory */
  double chunk_share; /* of grem: of the edges, in memory at once; 0: a tenth */
  uint64_t seed;      /* of the partitioner */
  quarry_progress progress; /* may be null */
  void* context;
  int edges_only; /* parts have no rows, whatever `table` says: for vectors that are learned */
};
int quarry_build_partitioning(quarry_store* store, const struct quarry_partitioning_options* options,
                              quarry_counters** report);
int quarry_drop_partitioning(quarry_store* store, const char* name);

/* Since version 1.3: embedding tables. How their rows are trained decides how much state each has beside its
 * vector: as much as the vector, none, or twice as much and the number of its steps. */
enum quarry_optimizer { QUARRY_ADAGRAD = 0, QUARRY_SGD = 1, QUARRY_ADAM = 2 };
/* What a row has before anybody writes it: in [-scale, scale), of standard deviation scale, or 0. */
enum quarry_init { QUARRY_INIT_UNIFORM = 0, QUARRY_INIT_NORMAL = 1, QUARRY_INIT_ZEROS = 2 };
struct quarry_embedding_spec {
  size_t size;
  uint64_t row_count;
  uint32_t dim;
  int optimizer;
  int element_type; /* QUARRY_FLOAT32 or QUARRY_BFLOAT16; 0: the first */
  int init;
  float init_scale; /* 0: 0.1 */
  uint64_t seed;    /* of the first values: rows of one seed and number are equal */
};
/* Makes the table, without writing its rows, whatever its size. QUARRY_ALREADY_EXISTS; QUARRY_INVALID_ARGUMENT
 * for a name with anything but letters, digits, - and _, and for an impossible table. */
int quarry_create_embeddings(quarry_store* store, const char* table,
                             const struct quarry_embedding_spec* spec);
/* Removes it for good. QUARRY_NOT_FOUND lists what there is. */
int quarry_drop_embeddings(quarry_store* store, const char* table);

/* Folds the changed rows of a table into a new file of it; nothing to do when there are none. With `dry_run`
 * says what would be done. */
int quarry_compact(quarry_store* store, const char* table, int dry_run, quarry_progress progress,
                   void* context, quarry_counters** report);
/* Since version 1.10: folds nodes and edges that came, and edges that went, into a new file of the topology (null: "graph"). */
int quarry_compact_topology(quarry_store* store, const char* topology, int dry_run, quarry_progress progress,
                            void* context, quarry_counters** report);
/* Since version 1.10: a table of a row of zeros for each node; `element_type` is one of quarry.h's. QUARRY_ALREADY_EXISTS. */
int quarry_create_table(quarry_store* store, const char* table, int element_type, uint64_t dim);
/* Removes it for good. QUARRY_INVALID_ARGUMENT names the layout that needs it, QUARRY_BUSY while it is read. */
int quarry_drop_table(quarry_store* store, const char* table);
/* A copy of the database as it is now, by links where that is possible: the folder `path`, which must not
 * exist. A server makes it for its own user and root alone, and takes a path from / on. */
int quarry_checkpoint(quarry_store* store, const char* path, quarry_progress progress, void* context,
                      quarry_counters** report);
/* Reads every byte. `fault` (may be null) is called with each fault, in words, on this thread. Faults are no
 * failure of the call: the report has their number as "faults". A server leaves out the last of many. */
typedef void (*quarry_fault)(void* context, const char* what);
int quarry_verify(quarry_store* store, quarry_fault fault, quarry_progress progress, void* context,
                  quarry_counters** report);
/* What the device and the memory do: as it was measured before, or, where nothing was or with `force`,
 * measured in 3 s. Not while a stream is open. */
int quarry_calibrate(quarry_store* store, int force, quarry_counters** report);

/* NOLINTEND(readability-identifier-naming) */
#ifdef __cplusplus
}
#endif

#endif /* QUARRY_CLIENT_C_ADMIN_H_ */
