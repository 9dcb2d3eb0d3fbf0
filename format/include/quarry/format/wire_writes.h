// Requests that write rows: of tables, and of embedding tables.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "quarry/format/wire_types.h"

namespace quarry::wire {

// New values of rows of one table, as a row block (wire_batch.h) whose timestamps are those that were read.
struct EmbeddingUpdate {
  std::string table;
  uint64_t rows = 0;
  uint32_t dim = 0;
  uint32_t state_dim = 0;
  Bulk block;
  bool operator==(const EmbeddingUpdate&) const = default;
};

struct CommitEmbeddings {
  uint64_t number = 0;  // of the client's writes, from 1: one that is sent again is done once
  std::vector<EmbeddingUpdate> updates;
  bool operator==(const CommitEmbeddings&) const = default;
};

// Rows to be stored: `rows` ids as uint64, then the rows as the table encodes them.
struct PutRows {
  std::string table;
  uint64_t rows = 0;
  uint32_t row_bytes = 0;  // 0: the rows are deleted
  Bulk block;
  bool operator==(const PutRows&) const = default;
};

struct Put {
  uint64_t number = 0;  // as above
  bool sync = true;
  std::vector<PutRows> tables;
  // For a commit in pieces: the pieces have one number and come in order, each after the answer to the one
  // before.
  uint64_t piece = 0;  // from 1; 0: all of it
  bool last = false;   // commits all pieces, synced; it may have no tables
  bool operator==(const Put&) const = default;
};

// Drops the pieces, if any came, of a put whose last piece did not come.
struct ForgetPut {
  uint64_t number = 0;
  bool operator==(const ForgetPut&) const = default;
};

}  // namespace quarry::wire
