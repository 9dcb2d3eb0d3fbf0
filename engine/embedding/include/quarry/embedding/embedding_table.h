// EmbeddingTable: learned parameters, one row per node (or relation): the vector, the optimizer's state
// beside it, and the timestamp of the batch that wrote them last (dissertation §3.2.2). Value, state and
// timestamp of a row are read and written as one.
//
// Rows travel as `RowBlock`s: float32 whatever the table stores. A bfloat16 table rounds; whoever computes
// must round before anybody else sees the values (RoundToStored), so that a cache and the table never differ.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "quarry/base/status.h"
#include "quarry/format/element_type.h"
#include "quarry/format/embedding_spec.h"
#include "quarry/format/types.h"

namespace quarry {

using RowId = uint64_t;

inline constexpr int64_t kNeverWritten = -1;

// Rows outside the table. `ids` ascending and unique; row i of values is [i * dim, (i + 1) * dim).
struct RowBlock {
  std::vector<RowId> ids;
  std::vector<float> values;  // ids.size() x dim
  std::vector<float> state;   // ids.size() x state_dim
  std::vector<int64_t> timestamps;

  void Resize(const EmbeddingSpec& spec) {
    values.resize(ids.size() * spec.dim);
    state.resize(ids.size() * spec.state_dim());
    timestamps.resize(ids.size());
  }
};

// Fills `values` with the vector that row `row` has before anybody writes it, as the table gives it back: a
// pure function of spec and row. Its timestamp is kNeverWritten, its state zero.
void InitRow(const EmbeddingSpec& spec, RowId row, std::span<float> values);

// Rounds to what a table of this element type gives back after a write. Does nothing for float32.
void RoundToStored(ElementType type, std::span<float> values);

// Thread-safe: any number of Read and Write at a time.
class EmbeddingTable {
 public:
  virtual ~EmbeddingTable() = default;
  virtual const EmbeddingSpec& spec() const = 0;
  // Fills the block for its ids. Each row is read as one (no torn rows), but rows of one call may date from
  // different times. kInvalidArgument for an id beyond the table.
  virtual Status Read(RowBlock& block) = 0;
  // Writes each row of the block whose timestamp is larger than the table's; the others stay as they are
  // (§3.2.2: smaller timestamps never overwrite larger ones).
  virtual Status Write(const RowBlock& block) = 0;
  // Starts bringing these rows into memory. A hint.
  virtual Status Prefetch(std::span<const RowId> ids) = 0;
};

// A table that lives in memory alone, in huge pages where they can be had, on a fixed number of striped
// latches. All rows are made at once. Null when the system refuses the memory.
std::unique_ptr<EmbeddingTable> MakeMemoryEmbeddingTable(const EmbeddingSpec& spec);

}  // namespace quarry
