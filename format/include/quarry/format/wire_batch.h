// How bulk data lie in shared memory (docs/protocol.md has the tables): a batch, for a client to use in
// place, and a row block of embeddings. Pure functions over bytes.
//
// Who reads does not trust who wrote, and memory that is shared may change while it is looked at. OpenBatch
// therefore reads the header once, into memory of its own, and gives out views whose bounds hold whatever
// happens in the memory afterwards. What the arrays hold is another matter: CheckBatch holds it to what a
// block is, as of that moment. Who must be sure copies the arrays of the block (a fraction of the rows) and
// checks the copies; rows may be anything.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>

#include "quarry/base/status.h"
#include "quarry/format/batch_view.h"
#include "quarry/format/element_type.h"
#include "quarry/format/types.h"

namespace quarry::wire {

inline constexpr uint32_t kBatchVersion = 1;
inline constexpr size_t kBatchHeaderBytes = 192;
inline constexpr size_t kBatchAlignment = 64;  // of the slot, and of every array in it

// What a batch consists of. Its counts determine where everything lies.
struct BatchShape {
  uint64_t index = 0;    // position in the pass
  uint32_t hops = 0;     // 1..kHopsMax
  uint32_t seeds = 0;    // nodes known after hop 0
  uint32_t targets = 0;  // nodes with a list of neighbors: those known after hop hops - 1
  uint32_t nodes = 0;
  uint64_t edges = 0;
  bool labels = false;
  bool edge_ids = false;
  bool relations = false;   // of edges: fanouts were by type
  uint32_t node_types = 0;  // that say what their rows are like; 0: rows are of one table
  // Features; none where dim is 0, but with node_types, where only stride_bytes tells.
  ElementType element_type = ElementType::kFloat32;
  uint32_t dim = 0;
  uint64_t rows = 0;          // that are there: `nodes` of them, when there are no slots
  uint64_t stride_bytes = 0;  // from one to the next, a multiple of 4
  bool slots = false;         // an array says which row a node has; else node i has row i
  bool rows_outside = false;  // the rows lie in another range
  bool operator==(const BatchShape&) const = default;
};

// Where the arrays of a batch are to be written: those of a BatchView.
struct BatchWriter {
  BatchShape shape;
  std::span<uint32_t> hop_offsets;  // [hops + 1]
  std::span<uint32_t> indptr;       // [targets + 1]
  std::span<uint32_t> indices;      // [edges]
  std::span<NodeId> nodes;          // [nodes]
  std::span<int64_t> labels;        // [seeds], or none
  std::span<uint32_t> slots;        // [nodes], or none
  std::span<std::byte> rows;        // [rows x stride_bytes]; none without features, and none outside
  std::span<uint64_t> edge_ids;     // [edges], or none
  std::span<uint16_t> relations;    // [edges], or none
  std::span<TypeRows> type_rows;    // [node_types], or none
};

// Bytes that the batch takes in its slot. kInvalidArgument for a shape that cannot be.
Result<uint64_t> BatchBytes(const BatchShape& shape);

// Writes the header, and says where the arrays are to be written. kInvalidArgument as above, and for a slot
// that is too small. REQUIRES: the slot is aligned to kBatchAlignment.
Result<BatchWriter> WriteBatchHeader(const BatchShape& shape, std::span<std::byte> slot);

// The batch in `slot`; `outside`: the range of its rows, where they are outside. kCorruption says what does
// not fit; kUnsupported for a batch of another version. The view is valid as long as the memory is.
Result<BatchView> OpenBatch(std::span<const std::byte> slot, std::span<const std::byte> outside = {});

// OK when the arrays are a block: offsets ascend, the local ids of a hop's lists are of nodes that the next
// hop knows, slots are of rows that are there, and rows have room for each type's. kCorruption otherwise. Which relations
// there are, the batch does not say.
Status CheckBatch(const BatchView& batch);

// Rows of an embedding table: ids uint64 | timestamps int64 | values float32 x dim | state float32 x
// state_dim, each array right behind the one before, row by row.
struct RowBlockShape {
  uint64_t rows = 0;
  uint32_t dim = 0;
  uint32_t state_dim = 0;
};

template <bool kWritable>
struct RowBlockArrays {
  template <typename T>
  using Span = std::span<std::conditional_t<kWritable, T, const T>>;

  Span<uint64_t> ids;
  Span<int64_t> timestamps;
  Span<float> values;
  Span<float> state;
};

uint64_t RowBlockBytes(const RowBlockShape& shape);  // REQUIRES: rows up to 2^32, dims up to kDimMax
// The arrays in place, to be read or to be written. kInvalidArgument when the bytes are not as many as the
// block has. REQUIRES: they are aligned to 8.
Result<RowBlockArrays<false>> OpenRowBlock(std::span<const std::byte> bytes, const RowBlockShape& shape);
Result<RowBlockArrays<true>> OpenRowBlock(std::span<std::byte> bytes, const RowBlockShape& shape);

}  // namespace quarry::wire
