// A small database of known content, written without the importer: every kind of cell, both sides of the
// topology, typed edges with weights, labels and splits.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <filesystem>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "quarry/base/random.h"
#include "quarry/catalog/catalog.h"
#include "quarry/format/topology.h"
#include "quarry/storage/feature_table.h"
#include "quarry/storage/store.h"
#include "quarry/storage/topology.h"

namespace quarry::testing_util {

enum class Medium {
  kDisk,    // where direct I/O and fsync are real
  kMemory,  // tmpfs where there is one: for tests that write many databases, most of whose time is fsync
};

// A folder of its own, removed in the end.
class ScratchFolder {
 public:
  explicit ScratchFolder(Medium medium = Medium::kDisk) {
    static std::atomic<int> serial{0};
    const bool memory = medium == Medium::kMemory && access("/dev/shm", W_OK) == 0;
    path_ = (memory ? "/dev/shm/" : testing::TempDir()) + "quarry-storage-" + std::to_string(getpid()) + "-" +
            std::to_string(serial++);
    std::filesystem::create_directory(path_);
  }
  ~ScratchFolder() {
    std::error_code ignored;
    std::filesystem::permissions(path_, std::filesystem::perms::owner_all, ignored);
    std::filesystem::remove_all(path_, ignored);
  }
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

inline std::vector<std::byte> RandomBytes(uint64_t bytes, uint64_t seed) {
  Rng rng(seed);
  std::vector<std::byte> out(bytes);
  for (std::byte& b : out) b = static_cast<std::byte>(rng());
  return out;
}

// One side of a graph, as lists.
struct Lists {
  std::vector<uint64_t> indptr{0};
  std::vector<NodeId> indices;
  std::vector<uint8_t> relations;
  std::vector<float> weights;
};

struct SmallStore {
  static constexpr uint64_t kNodes = 600;
  static constexpr uint64_t kRelations = 3;
  static constexpr uint64_t kClasses = 5;

  struct Table {
    TableRecord record;
    std::vector<std::byte> rows;
  };

  SmallStore(IoBackend& io, Medium medium) : folder(medium), backend(io) {
    for (size_t i = 0; i < 16; ++i) manifest.database_id[i] = static_cast<std::byte>(i + 1);
    manifest.node_count = kNodes;
    manifest.class_count = kClasses;
    manifest.source = "small_store.h";
    manifest.has_relation_names = true;
    MakeGraph();
    MakeTables();
  }

  // Writes the database at path(). Members may be changed before, to write a wrong one.
  Status Write() {
    QUARRY_RETURN_IF_ERROR(CreateStoreDirectory(backend, path()));
    for (Table& table : tables) {
      QUARRY_RETURN_IF_ERROR(WriteTable(table));
      manifest.tables.push_back(table.record);
    }
    QUARRY_RETURN_IF_ERROR(WriteTopology());
    QUARRY_TRY(const auto catalog, Catalog::Create(path()));
    QUARRY_RETURN_IF_ERROR(
        catalog->PutNames(NameKind::kRelation, 0, std::vector<std::string>{"cites", "likes", "knows"}));
    QUARRY_RETURN_IF_ERROR(catalog->CommitManifest(manifest));
    return catalog->Close();
  }

  std::string path() const { return folder.path() + "/db"; }
  Table& FindTable(std::string_view name) {
    return *std::find_if(tables.begin(), tables.end(), [&](const Table& t) { return t.record.name == name; });
  }

  ScratchFolder folder;
  IoBackend& backend;
  Manifest manifest;
  std::vector<Table> tables;
  TopologyRecord graph;
  Lists csc, csr;

 private:
  void AddTable(std::string name, ElementType type, uint64_t dim, std::vector<std::byte> rows) {
    Table table;
    table.record.file = "features/" + name + "-1.qft";
    table.record.name = std::move(name);
    table.record.element_type = type;
    table.record.dim = dim;
    table.record.row_count = kNodes;
    table.rows = std::move(rows);
    tables.push_back(std::move(table));
  }

  void MakeTables() {
    AddTable("feature", ElementType::kFloat32, 128, RandomBytes(kNodes * 512, 1));
    AddTable("narrow", ElementType::kFloat32, 7, RandomBytes(kNodes * 28, 2));
    AddTable("padded", ElementType::kUint8, 1433, RandomBytes(kNodes * 1433, 3));
    AddTable("wide", ElementType::kBfloat16, 2100, RandomBytes(kNodes * 4200, 4));
    std::vector<std::byte> labels(kNodes * sizeof(int64_t));
    std::vector<std::byte> splits(kNodes);
    for (uint64_t v = 0; v < kNodes; ++v) {
      const int64_t label = v % 11 == 0 ? -1 : static_cast<int64_t>(v % kClasses);
      std::memcpy(&labels[v * sizeof(int64_t)], &label, sizeof(int64_t));
      splits[v] = static_cast<std::byte>(v % 4);
    }
    AddTable("label", ElementType::kInt64, 1, std::move(labels));
    AddTable("split", ElementType::kUint8, 1, std::move(splits));
  }

  void MakeGraph() {
    Rng rng(5);
    std::vector<std::pair<NodeId, NodeId>> edges;  // (destination, source)
    std::set<std::pair<NodeId, NodeId>> drawn;
    while (drawn.size() < 9000) {
      // Half of the nodes have no in-neighbors.
      drawn.emplace(static_cast<NodeId>(rng.Below(kNodes / 2) * 2), static_cast<NodeId>(rng.Below(kNodes)));
    }
    edges.assign(drawn.begin(), drawn.end());
    csc = MakeLists(edges);
    for (auto& [to, from] : edges) std::swap(to, from);
    std::sort(edges.begin(), edges.end());
    csr = MakeLists(edges);
    graph = {.name = "graph",
             .file = "topology/graph-1.qtp",
             .node_count = kNodes,
             .edge_count = edges.size(),
             .relation_count = kRelations,
             .has_csr = true,
             .deduplicated = true,
             .weighted = true};
  }

  static Lists MakeLists(const std::vector<std::pair<NodeId, NodeId>>& sorted) {
    Lists lists;
    size_t edge = 0;
    for (NodeId v = 0; v < kNodes; ++v) {
      for (; edge < sorted.size() && sorted[edge].first == v; ++edge) {
        lists.indices.push_back(sorted[edge].second);
        lists.relations.push_back(
            static_cast<uint8_t>((sorted[edge].first + sorted[edge].second) % kRelations));
        lists.weights.push_back(static_cast<float>(sorted[edge].first * sorted[edge].second) / 4);
      }
      lists.indptr.push_back(edge);
    }
    return lists;
  }

  Status WriteTable(Table& table) {
    const TableRecord& record = table.record;
    QUARRY_TRY(const FeatureGeometry geometry,
               FeatureGeometry::Make(record.element_type, record.dim, record.row_count));
    QUARRY_TRY(const auto writer, FeatureTableWriter::Create(backend, path() + "/" + record.file, geometry,
                                                             manifest.database_id, record.generation));
    // In uneven helpings.
    for (uint64_t row = 0; row < record.row_count;) {
      const uint64_t count = std::min<uint64_t>(record.row_count - row, 1 + row % 37);
      QUARRY_RETURN_IF_ERROR(writer->Append(
          std::span(table.rows).subspan(row * geometry.row_bytes, count * geometry.row_bytes)));
      row += count;
    }
    QUARRY_TRY(table.record.file_bytes, writer->Finish());
    return Status::Ok();
  }

  Status WriteTopology() {
    QUARRY_TRY(const auto writer, DataFileWriter::Create(backend, path() + "/" + graph.file, 64 << 10));
    const auto write = [&](std::string_view name, std::span<const std::byte> bytes) -> Status {
      writer->BeginSection(name, DataFileWriter::Cover::kPages);
      QUARRY_RETURN_IF_ERROR(writer->Append(bytes));
      return writer->EndSection();
    };
    for (const Adjacency side : {Adjacency::kCsc, Adjacency::kCsr}) {
      const Lists& lists = side == Adjacency::kCsc ? csc : csr;
      const TopologySections names = SectionsOf(side);
      QUARRY_RETURN_IF_ERROR(write(names.indices, std::as_bytes(std::span(lists.indices))));
      QUARRY_RETURN_IF_ERROR(write(names.relations, std::as_bytes(std::span(lists.relations))));
      QUARRY_RETURN_IF_ERROR(write(names.weights, std::as_bytes(std::span(lists.weights))));
      QUARRY_RETURN_IF_ERROR(write(names.indptr, std::as_bytes(std::span(lists.indptr))));
    }
    QUARRY_TRY(graph.file_bytes, writer->Finish({.kind = FileKind::kTopology,
                                                 .database_id = manifest.database_id,
                                                 .row_count = graph.node_count,
                                                 .edge_count = graph.edge_count}));
    manifest.topologies = {graph};
    return Status::Ok();
  }
};

}  // namespace quarry::testing_util
