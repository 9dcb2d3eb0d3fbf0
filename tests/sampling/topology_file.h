// Topology files from arrays, without the external sort: for tests and benchmarks of what reads them.
#pragma once

#include <array>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "quarry/storage/data_file.h"
#include "quarry/storage/topology.h"

namespace quarry {

// Compressed neighbor lists of one side.
struct NeighborLists {
  std::vector<uint64_t> indptr = {0};
  std::vector<NodeId> indices;
  std::vector<float> weights = {};  // of the edges, or none

  std::span<const NodeId> Of(NodeId node) const {
    return std::span(indices).subspan(indptr[node], indptr[node + 1] - indptr[node]);
  }
};

inline constexpr std::array<std::byte, 16> kTestDatabaseId{std::byte{7}};

// Writes `directory`/`name` and opens it, its indices on disk. `csr` may be null.
inline Result<std::unique_ptr<Topology>> WriteTopology(IoBackend& backend, const std::string& directory,
                                                       const std::string& name, const NeighborLists& csc,
                                                       const NeighborLists* csr) {
  QUARRY_TRY(const std::unique_ptr<DataFileWriter> writer,
             DataFileWriter::Create(backend, directory + "/" + name));
  const auto write_side = [&](Adjacency side, const NeighborLists& lists) -> Status {
    const TopologySections names = SectionsOf(side);
    writer->BeginSection(names.indptr, DataFileWriter::Cover::kPages, lists.indptr.size() * sizeof(uint64_t));
    QUARRY_RETURN_IF_ERROR(writer->Append(std::as_bytes(std::span(lists.indptr))));
    QUARRY_RETURN_IF_ERROR(writer->EndSection());
    writer->BeginSection(names.indices, DataFileWriter::Cover::kPages, lists.indices.size() * sizeof(NodeId));
    QUARRY_RETURN_IF_ERROR(writer->Append(std::as_bytes(std::span(lists.indices))));
    QUARRY_RETURN_IF_ERROR(writer->EndSection());
    if (lists.weights.empty()) return Status::Ok();
    writer->BeginSection(names.weights, DataFileWriter::Cover::kPages, lists.weights.size() * sizeof(float));
    QUARRY_RETURN_IF_ERROR(writer->Append(std::as_bytes(std::span(lists.weights))));
    return writer->EndSection();
  };
  QUARRY_RETURN_IF_ERROR(write_side(Adjacency::kCsc, csc));
  if (csr != nullptr) QUARRY_RETURN_IF_ERROR(write_side(Adjacency::kCsr, *csr));
  TopologyRecord record{.name = name,
                        .file = name,
                        .node_count = csc.indptr.size() - 1,
                        .edge_count = csc.indices.size(),
                        .has_csr = csr != nullptr,
                        .weighted = !csc.weights.empty()};
  QUARRY_TRY(record.file_bytes, writer->Finish({.kind = FileKind::kTopology,
                                                .database_id = kTestDatabaseId,
                                                .generation = record.generation,
                                                .row_count = record.node_count,
                                                .edge_count = record.edge_count}));
  return Topology::Open(backend, directory, record, kTestDatabaseId);
}

}  // namespace quarry
