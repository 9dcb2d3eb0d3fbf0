/* Reads feature rows by node and changes one: rows DATABASE (a folder, or unix:SOCKET of `quarry serve`). */
#include <stdio.h>
#include <stdlib.h>

#include "quarry.h"

/* Negates the features of node 5, in one durable commit. */
static int negate(quarry_store* store) {
  const uint32_t node = 5;
  const uint64_t id = 5;
  quarry_rows* rows = NULL;
  int code = quarry_lookup(store, "feature", &node, 1, NULL, &rows);
  if (code != QUARRY_OK) return code;
  const uint32_t dim = quarry_rows_dim(rows);
  const int type = quarry_rows_element_type(rows);
  uint64_t row_bytes = 0;
  (void)quarry_rows_data(rows, &row_bytes); /* of one row, as the table encodes it */
  float* values = malloc(dim * sizeof *values);
  void* encoded = malloc(row_bytes);
  if (values == NULL || encoded == NULL) abort();
  code = quarry_rows_float32(rows, values, dim);
  if (code == QUARRY_OK) {
    printf("node 5: %u floats, the first %g\n", (unsigned)dim, values[0]);
    for (uint32_t i = 0; i < dim; ++i) values[i] = -values[i];
    code = quarry_encode_row(type, values, dim, encoded, row_bytes);
  }
  if (code == QUARRY_OK) {
    const struct quarry_put_rows put = {
        .table = "feature", .ids = &id, .count = 1, .rows = encoded, .row_bytes = (uint32_t)row_bytes};
    uint64_t timestamp = 0;
    code = quarry_put(store, &put, 1, 1, &timestamp);
    if (code == QUARRY_OK) printf("commit %llu: the first is %g\n", (unsigned long long)timestamp, values[0]);
  }
  free(encoded);
  free(values);
  quarry_rows_free(rows);
  return code;
}

int main(int argc, char** argv) {
  quarry_store* store = NULL;
  if (argc != 2) {
    fprintf(stderr, "usage: rows DATABASE\n");
    return 2;
  }
  int code = quarry_open(argv[1], NULL, &store);
  if (code == QUARRY_OK) code = negate(store);
  if (code != QUARRY_OK) fprintf(stderr, "rows: %s\n", quarry_last_error());
  quarry_close(store);
  return code == QUARRY_OK ? 0 : 1;
}
