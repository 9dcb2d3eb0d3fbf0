// Topology: the reader of one .qtp file, and of the runs over it.
//
// indptr is always resident (8 bytes a node and direction), and so are the edits of runs. It is that of the lists as file
// and runs together have them, and positions are positions in those. indices are loaded whole with LoadIndices, or stay on
// disk and are read by the sampler through its own ring, page by page with VerifyIndexPage: edits() says which
// position lies where. In CSC, indptr[v]..indptr[v+1] are the in-neighbors (sources) of v, ascending; in CSR the
// out-neighbors. So lists do not depend on how edges are divided among file and runs, and nothing drawn from them does.
//
// All const members are thread-safe; LoadIndices and LoadWeights are called once, before sharing.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "quarry/base/status.h"
#include "quarry/format/manifest.h"
#include "quarry/format/superblock.h"
#include "quarry/format/topology.h"
#include "quarry/format/types.h"
#include "quarry/io/backend.h"
#include "quarry/io/buffer.h"
#include "quarry/storage/data_file.h"
#include "quarry/storage/list_edits.h"

namespace quarry {

class RunsMeter;

// What edges have, in the order of their lists: four bytes each, though a file has relations in as few as will do.
enum class EdgeColumn : uint8_t { kNeighbors, kWeights, kRelations };

class Topology {
 public:
  // kCorruption when superblock, footer, indptr, a checksum array or a run do not hold or contradict `record`. An
  // open topology has indptr[0] == 0, ascending, ending at edge_count.
  static Result<std::unique_ptr<Topology>> Open(IoBackend& backend, const std::string& database_path,
                                                const TopologyRecord& record,
                                                std::span<const std::byte, 16> database_id);

  // Makes a topology without a file, its indices in memory: for tests and benchmarks. It has CSC, and CSR
  // where csr_indptr is not empty. REQUIRES: indptr from 0, ascending, ending at the edge count, of one size;
  // indices below the node count.
  static Result<std::unique_ptr<Topology>> FromMemory(std::vector<uint64_t> csc_indptr,
                                                      std::span<const NodeId> csc_indices,
                                                      std::vector<uint64_t> csr_indptr = {},
                                                      std::span<const NodeId> csr_indices = {});

  uint64_t node_count() const { return node_count_; }
  uint64_t edge_count() const { return edge_count_; }
  uint64_t relation_count() const { return relation_count_; }  // 1: all edges are of one
  bool has(Adjacency side) const { return !sides_[static_cast<int>(side)].indptr.empty(); }
  std::span<const uint64_t> indptr(Adjacency side) const { return sides_[static_cast<int>(side)].indptr; }
  // Empty until LoadIndices.
  std::span<const NodeId> indices(Adjacency side) const {
    const Side& s = sides_[static_cast<int>(side)];
    return {reinterpret_cast<const NodeId*>(s.indices.data()), s.indices.size() / sizeof(NodeId)};
  }
  // What an open one holds before it has loaded indices: indptr, the checksums of pages and edits, of every side.
  static uint64_t ResidentBytes(const TopologyRecord& record);
  uint64_t resident_bytes() const;  // the same, and loaded indices
  uint64_t IndicesBytes() const { return edge_count_ * sizeof(NodeId); }

  // Reads all indices of a side into memory, verified and in range. The caller has reserved IndicesBytes().
  Status LoadIndices(IoBackend& backend, Adjacency side);

  // Reads the weights of a side's edges into memory, verified, for draws in proportion to them. The caller has reserved
  // WeightsBytes(). kInvalidArgument when the edges have none, or one is negative, whose place the message names.
  Status LoadWeights(IoBackend& backend, Adjacency side);
  static uint64_t WeightsBytes(const TopologyRecord& record);  // of a side, loaded
  // Empty until LoadWeights.
  std::span<const float> weights(Adjacency side) const {
    const Side& s = sides_[static_cast<int>(side)];
    return {reinterpret_cast<const float*>(s.weights.data()), s.weights.size() / sizeof(float)};
  }
  // Only where the topology has no file: for tests and benchmarks, as FromMemory.
  Status SetWeights(Adjacency side, std::span<const float> weights);

  // What runs change of the file's edges.
  const EdgeEdits& edits(Adjacency side) const { return sides_[static_cast<int>(side)].edits; }

  // Seconds that opening it took, and of them, those of its runs.
  double open_seconds() const { return open_seconds_; }
  double open_run_seconds() const { return open_run_seconds_; }
  // Told what is drawn from it (growth_cost.h); null where nobody asks.
  RunsMeter* meter() const { return meter_.get(); }
  void set_meter(std::shared_ptr<RunsMeter> meter) { meter_ = std::move(meter); }

  // Access on disk: the base's edge i lies at indices_offset(side) + 4 * i of file(), in 4 KiB pages counted from
  // there.
  uint64_t base_edge_count() const { return base_edge_count_; }
  uint64_t BaseIndicesBytes() const { return base_edge_count_ * sizeof(NodeId); }
  const DataFile& data() const { return data_; }
  const File& file() const { return data_.file; }
  uint32_t block_bytes() const { return data_.block_bytes; }
  uint64_t indices_offset(Adjacency side) const { return sides_[static_cast<int>(side)].indices_offset; }
  // Verifies one whole page of the indices section (the last is padded with zeros to 4 KiB), and that its
  // indices are below node_count; kCorruption names file, page and edges.
  Status VerifyIndexPage(Adjacency side, uint64_t page, std::span<const std::byte> bytes) const;

 private:
  struct Side {
    std::vector<uint64_t> indptr;
    IoBuffer indices;
    IoBuffer weights;
    uint64_t indices_offset = 0;
    std::vector<uint32_t> page_checksums;
    EdgeEdits edits;
  };
  Topology() = default;
  Status OpenSide(IoBackend& backend, Adjacency side);
  Status OpenRuns(IoBackend& backend, const std::string& database_path, const TopologyRecord& record,
                  std::span<const std::byte, 16> database_id, Adjacency side);
  Result<IoBuffer> LoadEdited(IoBackend& backend, Adjacency side, EdgeColumn column) const;
  Status CheckWeights(Adjacency side, std::span<const float> weights) const;
  Status CheckRange(Adjacency side, uint64_t first_edge, std::span<const std::byte> indices) const;

  uint64_t node_count_ = 0;
  uint64_t file_nodes_ = 0;  // that the file has lists of
  uint64_t edge_count_ = 0;
  uint64_t base_edge_count_ = 0;
  uint64_t relation_count_ = 1;
  bool weighted_ = false;
  Side sides_[2];
  DataFile data_;
  double open_seconds_ = 0, open_run_seconds_ = 0;
  std::shared_ptr<RunsMeter> meter_;
};

}  // namespace quarry
