/* The same as counts.cc, in C. */
#include <stdio.h>

#include "quarry.h"

static int print_counts(quarry_store* store) {
  quarry_description* description = NULL;
  size_t tables = 0;
  int code = quarry_describe(store, &description);
  if (code != QUARRY_OK) return code;
  while (quarry_table(description, tables) != NULL) ++tables;
  printf("%llu nodes, %zu tables, %llu edges\n", (unsigned long long)quarry_node_count(description), tables,
         (unsigned long long)quarry_topology(description, 0)->edge_count);
  quarry_description_free(description);
  return QUARRY_OK;
}

static int print_rows(quarry_store* store) {
  const uint32_t ids[2] = {1, 2};
  quarry_rows* rows = NULL;
  const int code = quarry_lookup(store, "feature", ids, 2, NULL, &rows);
  if (code != QUARRY_OK) return code;
  printf("%llu rows of %u\n", (unsigned long long)quarry_rows_count(rows), (unsigned)quarry_rows_dim(rows));
  quarry_rows_free(rows);
  return QUARRY_OK;
}

static int print_batches(quarry_store* store) {
  const uint32_t fanouts[2] = {3, 2};
  struct quarry_live_spec live = {.size = sizeof live, .fanouts = fanouts, .fanout_count = 2};
  struct quarry_pass pass = {.size = sizeof pass, .ordered = 1};
  quarry_stream* stream = NULL;
  quarry_batch* batch = NULL;
  uint64_t batches = 0, seeds = 0;
  int code = quarry_open_live(store, &live, NULL, &stream);
  if (code == QUARRY_OK) code = quarry_start_pass(stream, &pass, &batches);
  while (code == QUARRY_OK) {
    struct quarry_batch_arrays arrays;
    code = quarry_next(stream, &batch);
    if (code != QUARRY_OK || batch == NULL) break;
    code = quarry_batch_get(batch, &arrays, sizeof arrays);
    seeds += arrays.seed_count;
    quarry_batch_free(batch);
  }
  quarry_stream_free(stream);
  if (code == QUARRY_OK)
    printf("%llu batches, %llu seeds\n", (unsigned long long)batches, (unsigned long long)seeds);
  return code;
}

int main(int argc, char** argv) {
  struct quarry_open_options options = {.size = sizeof options, .memory_bytes = 64 << 20};
  quarry_store* store = NULL;
  int code = QUARRY_USAGE;
  if (argc == 2 && quarry_abi_version() >> 16 == QUARRY_ABI_VERSION >> 16)
    code = quarry_open(argv[1], &options, &store);
  if (code == QUARRY_OK) code = print_counts(store);
  if (code == QUARRY_OK) code = print_rows(store);
  if (code == QUARRY_OK) code = print_batches(store);
  if (code != QUARRY_OK) fprintf(stderr, "%d: %s\n", code, quarry_last_error());
  quarry_close(store);
  return code;
}
