/* One epoch of mini-batches: batches DATABASE (a folder, or unix:SOCKET of `quarry serve`). */
#include <stdio.h>
#include <stdlib.h>

#include "quarry.h"

/* Gathers the rows of each batch into memory of this program, as a framework of tensors would want them. */
static int read_epoch(quarry_store* store) {
  const uint32_t fanouts[2] = {10, 5};
  const struct quarry_live_spec road = {
      .size = sizeof road, .fanouts = fanouts, .fanout_count = 2, .batch_size = 256, .cache_bytes = 16 << 20};
  const struct quarry_pass pass = {.size = sizeof pass, .split = QUARRY_TRAIN};
  quarry_stream* stream = NULL;
  quarry_batch* batch = NULL;
  float* rows = NULL;
  uint64_t batches = 0, seeds = 0, nodes = 0;
  int code = quarry_open_live(store, &road, NULL, &stream);
  if (code == QUARRY_OK) code = quarry_start_pass(stream, &pass, &batches);
  while (code == QUARRY_OK) {
    struct quarry_batch_arrays arrays;
    code = quarry_next(stream, &batch); /* null behind the last */
    if (code != QUARRY_OK || batch == NULL) break;
    code = quarry_batch_get(batch, &arrays, sizeof arrays);
    if (code == QUARRY_OK) {
      float* larger = realloc(rows, (size_t)arrays.node_count * arrays.dim * sizeof *rows);
      if (larger == NULL) abort();
      rows = larger;
      code = quarry_batch_gather(batch, QUARRY_FLOAT32, rows, 0, 0);
      seeds += arrays.seed_count;
      nodes += arrays.node_count;
    }
    quarry_batch_free(batch);
  }
  free(rows);
  quarry_stream_free(stream);
  if (code == QUARRY_OK)
    printf("%llu batches, %llu seeds, %llu rows gathered\n", (unsigned long long)batches,
           (unsigned long long)seeds, (unsigned long long)nodes);
  return code;
}

int main(int argc, char** argv) {
  quarry_store* store = NULL;
  if (argc != 2) {
    fprintf(stderr, "usage: batches DATABASE\n");
    return 2;
  }
  int code = quarry_open(argv[1], NULL, &store);
  if (code == QUARRY_OK) code = read_epoch(store);
  if (code != QUARRY_OK) fprintf(stderr, "batches: %s\n", quarry_last_error());
  quarry_close(store);
  return code == QUARRY_OK ? 0 : 1;
}
