#include <algorithm>
#include <cassert>
#include <cstring>

#include "external_sort.h"
#include "quarry/base/units.h"
#include "quarry/format/topology.h"
#include "quarry/storage/data_file.h"
#include "quarry/storage/topology.h"
#include "spool.h"

namespace quarry {
namespace {

constexpr uint64_t kWriterBytes = 2 * kMiB;
constexpr size_t kBatchKeys = 32 << 10;
// Writer with its checksums, two spools, batches of keys and what is made of them.
constexpr uint64_t kFixedBytes = 8 * kMiB;

// What is sorted: list (the node whose neighbors these are), neighbor, and the relation where there are
// several, from the most significant end, 32 bits each.
struct KeyParts {
  NodeId list;
  NodeId neighbor;
  uint32_t relation;
};

template <typename Key>
constexpr bool kTyped = sizeof(Key) > sizeof(uint64_t);

template <typename Key>
Key Pack(uint64_t list, uint64_t neighbor, uint32_t relation) {
  const Key pair = list << 32 | neighbor;
  if constexpr (kTyped<Key>) return pair << 32 | relation;
  return pair;
}

template <typename Key>
KeyParts Unpack(Key key) {
  uint32_t relation = 0;
  if constexpr (kTyped<Key>) {
    relation = static_cast<uint32_t>(key);
    key >>= 32;
  }
  return {static_cast<NodeId>(key >> 32), static_cast<NodeId>(key), relation};
}

// Cuts relation ids to the width that the file gives them.
class RelationNarrower {
 public:
  explicit RelationNarrower(uint64_t relation_count) : width_(RelationIdBytes(relation_count)) {}
  std::span<const std::byte> Narrow(std::span<const uint32_t> relations) {
    bytes_.resize(relations.size() * width_);
    for (size_t i = 0; i < relations.size(); i++) std::memcpy(&bytes_[i * width_], &relations[i], width_);
    return bytes_;
  }

 private:
  const uint64_t width_;  // the CPU is little-endian, so that the low bytes come first
  std::vector<std::byte> bytes_;
};

// Turns the ascending lists of keys into indptr: 64-bit ends, one per list, lists without keys included.
class IndptrWriter {
 public:
  IndptrWriter(Spool& spool, uint64_t node_count) : spool_(spool), node_count_(node_count) {}

  // `position` keys come before the first key of `list`. REQUIRES: lists ascend.
  Status Reach(uint64_t list, uint64_t position) {
    while (next_ <= list) {
      ends_.push_back(position);
      next_++;
      if (ends_.size() == kBatchKeys) QUARRY_RETURN_IF_ERROR(Flush());
    }
    return Status::Ok();
  }
  Status End(uint64_t key_count) {
    QUARRY_RETURN_IF_ERROR(Reach(node_count_, key_count));
    return Flush();
  }

 private:
  Status Flush() {
    QUARRY_RETURN_IF_ERROR(spool_.Append(std::as_bytes(std::span(ends_))));
    ends_.clear();
    return Status::Ok();
  }
  Spool& spool_;
  const uint64_t node_count_;
  uint64_t next_ = 0;  // the list whose start comes next
  std::vector<uint64_t> ends_;
};

template <typename Key>
class Builder final : public TopologyBuilder {
 public:
  Builder(IoBackend& backend, const TopologyBuildOptions& options)
      : backend_(backend), options_(options), deduplicate_(options.deduplicate || options.undirected) {
    const uint64_t sort_bytes =
        RoundDown((options.memory_bytes - kFixedBytes) / (options.csr ? 2 : 1), kPageBytes);
    const ExternalSortOptions sort = {.memory_bytes = sort_bytes,
                                      .scratch_directory = options.scratch_directory,
                                      .deduplicate = deduplicate_};
    by_destination_ = std::make_unique<ExternalSorter<Key>>(backend, sort);
    if (options.csr) by_source_ = std::make_unique<ExternalSorter<Key>>(backend, sort);
    keys_.reserve(2 * kBatchKeys);
  }

  Status Add(std::span<const Edge> edges, uint32_t relation) override {
    assert(relation < options_.relation_count);
    while (!edges.empty()) {
      const auto batch = edges.first(std::min(edges.size(), kBatchKeys));
      edges = edges.subspan(batch.size());
      keys_.clear();
      for (const Edge& edge : batch) {
        id_max_ = std::max({id_max_, edge.source, edge.destination});
        keys_.push_back(Pack<Key>(edge.destination, edge.source, relation));
      }
      assert(id_max_ < kNodeCountMax);
      if (options_.undirected) {
        for (const Edge& edge : batch) keys_.push_back(Pack<Key>(edge.source, edge.destination, relation));
      }
      added_edges_ += keys_.size();
      QUARRY_RETURN_IF_ERROR(by_destination_->Add(keys_));
    }
    return Status::Ok();
  }
  uint64_t node_count_min() const override { return added_edges_ == 0 ? 0 : id_max_ + 1; }
  uint64_t added_edges() const override { return added_edges_; }

  Result<TopologyRecord> Finish(const std::string& path, uint64_t node_count,
                                std::span<const std::byte, 16> database_id, uint64_t generation,
                                const std::function<Status(uint64_t)>& progress) override {
    assert(node_count >= node_count_min());
    keys_ = {};
    QUARRY_TRY(const auto writer, DataFileWriter::Create(backend_, path, kWriterBytes));
    QUARRY_TRY(const uint64_t edge_count,
               WriteSide(Adjacency::kCsc, node_count, *by_destination_, *writer, progress));
    by_destination_.reset();  // its memory and disk are not needed for the other side
    if (by_source_ != nullptr) {
      QUARRY_TRY([[maybe_unused]] const uint64_t same,
                 WriteSide(Adjacency::kCsr, node_count, *by_source_, *writer, progress));
      assert(same == edge_count);
    }
    Superblock superblock{.kind = FileKind::kTopology,
                          .generation = generation,
                          .row_count = node_count,
                          .edge_count = edge_count};
    std::copy(database_id.begin(), database_id.end(), superblock.database_id.begin());
    QUARRY_TRY(const uint64_t file_bytes, writer->Finish(superblock));
    return TopologyRecord{.generation = generation,
                          .node_count = node_count,
                          .edge_count = edge_count,
                          .relation_count = options_.relation_count,
                          .has_csr = options_.csr,
                          // Typed lists may hold a neighbor once per relation.
                          .deduplicated = deduplicate_ && !kTyped<Key>,
                          .undirected = options_.undirected,
                          .file_bytes = file_bytes};
  }

 private:
  // Drains `sorter` into the sections of one side; returns the edges written. The CSC side hands every edge
  // on to the sorter of the CSR side, so that both hold the same ones.
  Result<uint64_t> WriteSide(Adjacency side, uint64_t node_count, ExternalSorter<Key>& sorter,
                             DataFileWriter& writer, const std::function<Status(uint64_t)>& progress) {
    const TopologySections names = SectionsOf(side);
    QUARRY_RETURN_IF_ERROR(sorter.Finish());
    QUARRY_TRY(Spool indptr, Spool::Make(backend_, options_.scratch_directory));
    QUARRY_TRY(Spool relations, Spool::Make(backend_, options_.scratch_directory));
    IndptrWriter lists(indptr, node_count);
    RelationNarrower narrower(options_.relation_count);
    std::vector<Key> keys(kBatchKeys);
    std::vector<NodeId> neighbors(kBatchKeys);
    std::vector<uint32_t> relation_ids(kTyped<Key> ? kBatchKeys : 0);
    uint64_t written = 0;
    writer.BeginSection(names.indices, DataFileWriter::Cover::kPages,
                        deduplicate_ ? 0 : added_edges_ * sizeof(NodeId));
    while (true) {
      QUARRY_TRY(const size_t n, sorter.Read(keys));
      if (n == 0) break;
      for (size_t i = 0; i < n; i++) {
        const KeyParts parts = Unpack<Key>(keys[i]);
        QUARRY_RETURN_IF_ERROR(lists.Reach(parts.list, written + i));
        neighbors[i] = parts.neighbor;
        if constexpr (kTyped<Key>) relation_ids[i] = parts.relation;
      }
      QUARRY_RETURN_IF_ERROR(writer.Append(std::as_bytes(std::span(neighbors).first(n))));
      if constexpr (kTyped<Key>) {
        QUARRY_RETURN_IF_ERROR(relations.Append(narrower.Narrow(std::span(relation_ids).first(n))));
      }
      if (side == Adjacency::kCsc && by_source_ != nullptr)
        QUARRY_RETURN_IF_ERROR(Transpose(std::span(keys).first(n)));
      written += n;
      if (progress) QUARRY_RETURN_IF_ERROR(progress(written));
    }
    QUARRY_RETURN_IF_ERROR(writer.EndSection());
    if constexpr (kTyped<Key>) QUARRY_RETURN_IF_ERROR(WriteSpool(relations, names.relations, writer));
    QUARRY_RETURN_IF_ERROR(lists.End(written));
    QUARRY_RETURN_IF_ERROR(WriteSpool(indptr, names.indptr, writer));
    return written;
  }

  Status Transpose(std::span<Key> keys) {
    for (Key& key : keys) {
      const KeyParts parts = Unpack<Key>(key);
      key = Pack<Key>(parts.neighbor, parts.list, parts.relation);
    }
    return by_source_->Add(keys);
  }

  static Status WriteSpool(Spool& spool, std::string_view name, DataFileWriter& writer) {
    writer.BeginSection(name, DataFileWriter::Cover::kPages, spool.bytes());
    QUARRY_RETURN_IF_ERROR(spool.CopyTo(writer));
    return writer.EndSection();
  }

  IoBackend& backend_;
  const TopologyBuildOptions options_;
  const bool deduplicate_;
  std::unique_ptr<ExternalSorter<Key>> by_destination_;
  std::unique_ptr<ExternalSorter<Key>> by_source_;  // CSR only
  std::vector<Key> keys_;
  uint64_t added_edges_ = 0;
  uint64_t id_max_ = 0;
};

}  // namespace

Result<std::unique_ptr<TopologyBuilder>> TopologyBuilder::Create(IoBackend& backend,
                                                                 const TopologyBuildOptions& options) {
  assert(options.relation_count >= 1);
  if (options.memory_bytes < kTopologyBuildBytesMin) {
    return MakeStatus(Code::kOutOfBudget, "building a topology needs at least {}; {} are given",
                      FormatBytes(kTopologyBuildBytesMin), FormatBytes(options.memory_bytes));
  }
  if (options.relation_count == 1)
    return std::unique_ptr<TopologyBuilder>(new Builder<uint64_t>(backend, options));
  return std::unique_ptr<TopologyBuilder>(new Builder<uint128_t>(backend, options));
}

}  // namespace quarry
