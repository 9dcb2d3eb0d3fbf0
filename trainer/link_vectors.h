// Vectors of embedding tables as rankings read them, and a copy of them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "link_memory.h"
#include "quarry/base/status.h"
#include "quarry/embedding/embedding_table.h"
#include "quarry/io/backend.h"
#include "scratch_rows.h"

namespace quarry {

// Fills `values` with the vectors of these rows.
Status ReadRows(EmbeddingTable& table, std::span<const RowId> ids, std::span<float> values);
// Gives the rows of `from` to `to`, which has no fewer and where nobody has written.
Status CopyTable(EmbeddingTable& from, EmbeddingTable& to);
// Makes `values` the vectors of all rows.
Status ReadAll(EmbeddingTable& table, std::vector<float>& values);

// What a training had learned at its best epoch, without the optimizer's state: what is ranked in the end where no
// checkpoint keeps it. Vectors of nodes lie in memory, or, for tables that are stored, in a file without a name that ends
// with this object: 4 bytes a float, written front to back with each copy.
//
// One thread. The backend outlives it.
class VectorCopy {
 public:
  // What a copy in a file holds. One in memory also has the vectors, 4 bytes a float.
  static uint64_t Bytes(const LinkTrainOptions& options, const LinkCounts& counts);

  VectorCopy() = default;  // in memory
  VectorCopy(IoBackend& backend, std::string folder) : backend_(&backend), folder_(std::move(folder)) {}

  // Takes the place of the copy before. `relations` may be null. Errors of the tables and the file, after which there
  // is no copy.
  Status Take(EmbeddingTable& nodes, EmbeddingTable* relations, std::vector<std::byte> task_state);
  bool empty() const { return empty_; }
  // The rest REQUIRES a copy.
  Status ReadNodes(std::span<const RowId> ids, std::span<float> values);
  Status ReadAllNodes(std::vector<float>& values);
  const std::vector<float>& relations() const { return relations_; }
  std::span<const std::byte> task_state() const { return task_state_; }

 private:
  Status TakeToFile(EmbeddingTable& nodes);

  IoBackend* const backend_ = nullptr;
  const std::string folder_;
  bool empty_ = true;
  std::vector<float> nodes_, relations_;
  size_t node_floats_ = 0;
  std::unique_ptr<ScratchRows> file_;
  std::vector<std::byte> task_state_;
};

}  // namespace quarry
