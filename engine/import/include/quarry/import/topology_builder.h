// TopologyBuilder: the external sort that writes a .qtp file.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "quarry/base/status.h"
#include "quarry/format/manifest.h"
#include "quarry/format/types.h"
#include "quarry/io/backend.h"

namespace quarry {

struct TopologyBuildOptions {
  bool csr = false;             // also CSR
  bool undirected = false;      // add the reverse of every edge; implies deduplicate
  bool deduplicate = false;     // equal edges are kept once (equal in relation too, when there are several)
  bool weighted = false;        // weights are kept per edge; one that stands for several has their sum
  uint32_t relation_count = 1;  // edge types; more than one: ids are kept per edge
  bool by_relation = false;     // lists have their neighbors by relation, and ascending within one
  uint64_t memory_bytes = 256 << 20;  // for sort buffers and merge; at least kTopologyBuildBytesMin
  std::string scratch_directory;      // exists; runs are spilled here, to files that are unlinked at once
};
inline constexpr uint64_t kTopologyBuildBytesMin = 16 << 20;

// Sorts edges by (destination, source, relation), or by (destination, relation, source), (and with the ends exchanged for
// CSR) with an external merge sort in bounded memory and writes the file. Add in any order, then Finish once. Owned and
// used by one thread; after an error only its destructor may be called.
class TopologyBuilder {
 public:
  // kOutOfBudget for less memory than the least.
  static Result<std::unique_ptr<TopologyBuilder>> Create(IoBackend& backend,
                                                         const TopologyBuildOptions& options);
  virtual ~TopologyBuilder() = default;
  // `weights` has one finite weight for each edge; empty = 1 each, where edges have weights. An added reverse
  // edge has the weight of its edge, and gives way to one that the source has. REQUIRES: ids below
  // kNodeCountMax, relation below relation_count.
  virtual Status Add(std::span<const Edge> edges, uint32_t relation = 0,
                     std::span<const float> weights = {}) = 0;
  virtual uint64_t node_count_min() const = 0;  // 1 + the largest id added so far
  // Edges that Finish will sort, before deduplication.
  virtual uint64_t added_edges() const = 0;
  // Writes `path` for node_count nodes (>= node_count_min()) and returns the record (name and file left
  // empty). `progress` is called now and then with the edges written; an error that it returns ends the work.
  // kInvalidArgument when a sum of weights exceeds float32.
  virtual Result<TopologyRecord> Finish(const std::string& path, uint64_t node_count,
                                        std::span<const std::byte, 16> database_id, uint64_t generation,
                                        const std::function<Status(uint64_t edges)>& progress = {}) = 0;
  // The edges of each relation that Finish has written; none, where lists are not by relation.
  virtual std::span<const uint64_t> relation_edges() const = 0;
};

}  // namespace quarry
