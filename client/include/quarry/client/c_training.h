/* Quarry's C interface: what training needs besides batches: edges, and states of training runs. Part of
 * quarry.h, which is what programs include. Since version 1.1. */
#ifndef QUARRY_CLIENT_C_TRAINING_H_
#define QUARRY_CLIENT_C_TRAINING_H_

#include "quarry.h"

#ifdef __cplusplus
extern "C" {
#endif
/* NOLINTBEGIN(readability-identifier-naming): names as C has them */

/* ---- edges */

/* Reads head, relation and tail of edges [first, first + count) of a topology (null: "graph"), by
 * destination, into `edges`, which has room for 3 x count. `edge_count` becomes the number read, fewer only at
 * the end. */
int quarry_read_edges(quarry_store* store, const char* topology, uint64_t first, uint64_t count,
                      uint32_t* edges, uint64_t* edge_count);

/* ---- training runs */

/* The last checkpoint of a run, which the same trainer or another one can go on from. May outlive the store. */
typedef struct quarry_training quarry_training;
/* QUARRY_NOT_FOUND lists the runs that there are. Without the state it takes no memory. */
int quarry_read_training(quarry_store* store, const char* name, int with_state, quarry_training** training);
void quarry_training_free(quarry_training* training);
const char* quarry_training_settings(const quarry_training* training); /* all that decided its result */
const char* quarry_training_created_utc(const quarry_training* training);
/* The timestamp of the embedding tables that belong to it; -1: none. */
int64_t quarry_training_timestamp(const quarry_training* training);
/* As the trainer wrote it; null and 0 bytes where it was not asked for. `bytes` may be null. */
const void* quarry_training_state(const quarry_training* training, uint64_t* bytes);

struct quarry_training_to_save {
  size_t size;
  const char* name;     /* the run's */
  const char* settings; /* null: "" */
  const void* state;
  size_t state_bytes;  /* 1 at least */
  int with_embeddings; /* in one commit with all that was committed to embedding tables */
};
/* Replaces the run's last checkpoint, at once and on disk. `training` (may be null) becomes what
 * quarry_read_training would give, without the state. */
int quarry_save_training(quarry_store* store, const struct quarry_training_to_save* save,
                         quarry_training** training);

/* NOLINTEND(readability-identifier-naming) */
#ifdef __cplusplus
}
#endif

#endif /* QUARRY_CLIENT_C_TRAINING_H_ */
