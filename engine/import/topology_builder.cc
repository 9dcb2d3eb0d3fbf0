#include <algorithm>
#include <bit>
#include <cassert>
#include <cmath>
#include <cstring>

#include "quarry/base/units.h"
#include "quarry/format/topology.h"
#include "quarry/import/external_sort.h"
#include "quarry/import/topology_builder.h"
#include "quarry/storage/data_file.h"
#include "quarry/storage/edge_columns.h"
#include "quarry/storage/topology.h"
#include "spool.h"

namespace quarry {
namespace {

constexpr uint64_t kWriterBytes = 2 * kMiB;
constexpr size_t kBatchKeys = 32 << 10;
// Writer with its checksums, two spools, batches of keys and what is made of them.
constexpr uint64_t kFixedBytes = 8 * kMiB;

// What is sorted, from the most significant end: list (the node whose neighbors these are) and neighbor, 32
// bits each. A graph with several relations or with weights adds the relation (31), whether it is the
// reverse that was added to an edge (1), and the bits of the weight (32). What a graph lacks is 0, and
// costs the sort nothing. Where lists are by relation, it stands before the neighbor.
struct KeyParts {
  NodeId list = 0;
  NodeId neighbor = 0;
  uint32_t relation = 0;
  bool reverse = false;
  float weight = 0;
};

template <typename Key>
constexpr bool kAttributed = sizeof(Key) > sizeof(uint64_t);

template <typename Key>
Key Pack(const KeyParts& parts, bool by_relation) {
  const Key pair = Key{parts.list} << 32 | parts.neighbor;
  if constexpr (kAttributed<Key>) {
    const Key edge = by_relation ? (Key{parts.list} << 31 | parts.relation) << 32 | parts.neighbor
                                 : pair << 31 | parts.relation;
    return (edge << 1 | static_cast<uint32_t>(parts.reverse)) << 32 | std::bit_cast<uint32_t>(parts.weight);
  }
  return pair;
}

template <typename Key>
KeyParts Unpack(Key key, bool by_relation) {
  KeyParts parts;
  if constexpr (kAttributed<Key>) {
    const auto low = static_cast<uint64_t>(key);
    parts.weight = std::bit_cast<float>(static_cast<uint32_t>(low));
    parts.reverse = (low >> 32 & 1) != 0;
    if (by_relation) {
      parts.neighbor = static_cast<NodeId>(key >> 33);
      parts.relation = static_cast<uint32_t>(key >> 65) & 0x7fffffff;
      parts.list = static_cast<NodeId>(key >> 96);
      return parts;
    }
    parts.relation = static_cast<uint32_t>(low >> 33);
    key >>= 64;
  }
  parts.list = static_cast<NodeId>(key >> 32);
  parts.neighbor = static_cast<NodeId>(key);
  return parts;
}

// Reads the sorted keys of a graph whose edges are kept once, with the sums of their weights. Reverses come
// behind the edges that were given, and count where there are none of those: an edge that a source lists both
// ways keeps its two weights. REQUIRES: lists are those of CSC (from which those of CSR are made).
class WeightSums {
 public:
  WeightSums(ExternalSorter<uint128_t>& sorter, bool by_relation)
      : sorter_(sorter), by_relation_(by_relation), keys_(kBatchKeys) {}

  Result<size_t> Read(std::span<uint128_t> out) {
    size_t filled = 0;
    while (filled < out.size()) {
      QUARRY_TRY(const bool more, Look());
      if (!more) break;
      const uint128_t kind = keys_[at_] >> 33;  // all but whether it is a reverse, and the weight
      KeyParts sum = Unpack(keys_[at_], by_relation_);
      double weight = 0;
      for (bool same = true; same;) {
        const KeyParts next = Unpack(keys_[at_++], by_relation_);
        if (next.reverse == sum.reverse) weight += double{next.weight};
        QUARRY_TRY(same, Look());
        same = same && keys_[at_] >> 33 == kind;
      }
      sum.weight = static_cast<float>(weight);
      if (!std::isfinite(sum.weight)) {
        return MakeStatus(
            Code::kInvalidArgument,
            "the weights of the edges from node {} to node {} add up to {}, which float32 cannot "
            "hold",
            sum.neighbor, sum.list, weight);
      }
      sum.reverse = false;
      out[filled++] = Pack<uint128_t>(sum, by_relation_);
    }
    return filled;
  }

 private:
  // Whether there is a key at at_.
  Result<bool> Look() {
    if (at_ == count_) {
      QUARRY_TRY(count_, sorter_.Read(keys_));
      at_ = 0;
    }
    return count_ > 0;
  }

  ExternalSorter<uint128_t>& sorter_;
  const bool by_relation_;
  std::vector<uint128_t> keys_;
  size_t at_ = 0;
  size_t count_ = 0;
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
    assert(options.relation_count < uint32_t{1} << 31);
    const uint64_t sort_bytes =
        RoundDown((options.memory_bytes - kFixedBytes) / (options.csr ? 2 : 1), kPageBytes);
    const ExternalSortOptions sort = {.memory_bytes = sort_bytes,
                                      .scratch_directory = options.scratch_directory,
                                      .deduplicate = deduplicate_ && !options.weighted};
    by_destination_ = std::make_unique<ExternalSorter<Key>>(backend, sort);
    if (options.csr) by_source_ = std::make_unique<ExternalSorter<Key>>(backend, sort);
    if (options.by_relation) relation_edges_.resize(options.relation_count);
    keys_.reserve(2 * kBatchKeys);
  }

  Status Add(std::span<const Edge> edges, uint32_t relation, std::span<const float> weights) override {
    assert(relation < options_.relation_count);
    assert(weights.empty() || (options_.weighted && weights.size() == edges.size()));
    for (size_t first = 0; first < edges.size(); first += kBatchKeys) {
      const size_t end = std::min(edges.size(), first + kBatchKeys);
      keys_.clear();
      for (size_t i = first; i < end; i++) {
        const Edge& edge = edges[i];
        id_max_ = std::max({id_max_, edge.source, edge.destination});
        KeyParts parts{.list = static_cast<NodeId>(edge.destination),
                       .neighbor = static_cast<NodeId>(edge.source),
                       .relation = relation};
        if (options_.weighted) parts.weight = weights.empty() ? 1.0f : weights[i];
        keys_.push_back(Pack<Key>(parts, options_.by_relation));
        if (!options_.undirected) continue;
        std::swap(parts.list, parts.neighbor);
        parts.reverse = options_.weighted;  // else equal keys would not be equal
        keys_.push_back(Pack<Key>(parts, options_.by_relation));
      }
      assert(id_max_ < kNodeCountMax);
      added_edges_ += keys_.size();
      QUARRY_RETURN_IF_ERROR(by_destination_->Add(keys_));
    }
    return Status::Ok();
  }
  uint64_t node_count_min() const override { return added_edges_ == 0 ? 0 : id_max_ + 1; }
  uint64_t added_edges() const override { return added_edges_; }
  std::span<const uint64_t> relation_edges() const override { return relation_edges_; }

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
    return TopologyRecord{
        .generation = generation,
        .node_count = node_count,
        .edge_count = edge_count,
        .relation_count = options_.relation_count,
        .has_csr = options_.csr,
        // Lists of several relations may hold a neighbor once for each.
        .deduplicated = deduplicate_ && (options_.relation_count == 1 || options_.by_relation),
        .undirected = options_.undirected,
        .distinct = deduplicate_,
        .weighted = options_.weighted,
        .by_relation = options_.by_relation,
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
    QUARRY_TRY(Spool weights, Spool::Make(backend_, options_.scratch_directory));
    IndptrWriter lists(indptr, node_count);
    RelationNarrower narrower(options_.relation_count);
    const KeySource source = SourceOf(sorter);
    std::vector<Key> keys(kBatchKeys);
    std::vector<NodeId> neighbors(kBatchKeys);
    std::vector<uint32_t> relation_ids(kBatchKeys);
    std::vector<float> edge_weights(kBatchKeys);
    uint64_t written = 0;
    writer.BeginSection(names.indices, DataFileWriter::Cover::kPages,
                        deduplicate_ ? 0 : added_edges_ * sizeof(NodeId));
    while (true) {
      QUARRY_TRY(const size_t n, source(keys));
      if (n == 0) break;
      for (size_t i = 0; i < n; i++) {
        const KeyParts parts = Unpack<Key>(keys[i], options_.by_relation);
        QUARRY_RETURN_IF_ERROR(lists.Reach(parts.list, written + i));
        neighbors[i] = parts.neighbor;
        relation_ids[i] = parts.relation;
        edge_weights[i] = parts.weight;
      }
      if (options_.by_relation && side == Adjacency::kCsc) {
        for (const uint32_t relation : std::span(relation_ids).first(n)) ++relation_edges_[relation];
      }
      QUARRY_RETURN_IF_ERROR(writer.Append(std::as_bytes(std::span(neighbors).first(n))));
      if (options_.relation_count > 1) {
        QUARRY_RETURN_IF_ERROR(relations.Append(narrower.Narrow(std::span(relation_ids).first(n))));
      }
      if (options_.weighted) {
        QUARRY_RETURN_IF_ERROR(weights.Append(std::as_bytes(std::span(edge_weights).first(n))));
      }
      if (side == Adjacency::kCsc && by_source_ != nullptr)
        QUARRY_RETURN_IF_ERROR(Transpose(std::span(keys).first(n)));
      written += n;
      if (progress) QUARRY_RETURN_IF_ERROR(progress(written));
    }
    QUARRY_RETURN_IF_ERROR(writer.EndSection());
    if (options_.relation_count > 1) {
      QUARRY_RETURN_IF_ERROR(WriteSpool(relations, names.relations, writer));
    }
    if (options_.weighted) QUARRY_RETURN_IF_ERROR(WriteSpool(weights, names.weights, writer));
    QUARRY_RETURN_IF_ERROR(lists.End(written));
    QUARRY_RETURN_IF_ERROR(WriteSpool(indptr, names.indptr, writer));
    return written;
  }

  // What reads the edges that are kept.
  using KeySource = std::function<Result<size_t>(std::span<Key>)>;
  KeySource SourceOf(ExternalSorter<Key>& sorter) const {
    if constexpr (kAttributed<Key>) {
      if (deduplicate_ && options_.weighted && &sorter == by_destination_.get()) {
        return [sums = std::make_shared<WeightSums>(sorter, options_.by_relation)](std::span<Key> out) {
          return sums->Read(out);
        };
      }
    }
    return [&sorter](std::span<Key> out) { return sorter.Read(out); };
  }

  Status Transpose(std::span<Key> keys) {
    for (Key& key : keys) {
      KeyParts parts = Unpack<Key>(key, options_.by_relation);
      std::swap(parts.list, parts.neighbor);
      key = Pack<Key>(parts, options_.by_relation);
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
  std::vector<uint64_t> relation_edges_;
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
  if (options.relation_count == 1 && !options.weighted)
    return std::unique_ptr<TopologyBuilder>(new Builder<uint64_t>(backend, options));
  return std::unique_ptr<TopologyBuilder>(new Builder<uint128_t>(backend, options));
}

}  // namespace quarry
