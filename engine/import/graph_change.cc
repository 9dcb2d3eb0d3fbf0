#include "quarry/import/graph_change.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <filesystem>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "edge_weights.h"
#include "quarry/base/kill_point.h"
#include "quarry/base/log.h"
#include "quarry/base/trace.h"
#include "quarry/base/units.h"
#include "quarry/import/external_sort.h"
#include "quarry/storage/edge_columns.h"
#include "quarry/storage/topology_compaction.h"
#include "quarry/storage/topology_run.h"

namespace quarry {
namespace {

constexpr size_t kChangeBatch = 16 << 10;
constexpr uint64_t kReadersBytes = 2 * kMiB;

// What is sorted: list, neighbor, whether the edge is added (else removed), whether it is the reverse of one that was
// given, and its weight.
struct ChangeKey {
  NodeId list = 0;
  NodeId neighbor = 0;
  bool add = false;
  bool reverse = false;
  float weight = 0;

  uint128_t Packed() const {
    const uint128_t pair = uint128_t{list} << 32 | neighbor;
    return pair << 64 | uint64_t{add} << 33 | uint64_t{reverse} << 32 | std::bit_cast<uint32_t>(weight);
  }
  static ChangeKey Of(uint128_t key) {
    const auto low = static_cast<uint64_t>(key);
    return {.list = static_cast<NodeId>(key >> 96),
            .neighbor = static_cast<NodeId>(key >> 64),
            .add = (low >> 33 & 1) != 0,
            .reverse = (low >> 32 & 1) != 0,
            .weight = std::bit_cast<float>(static_cast<uint32_t>(low))};
  }
};

// Reads sorted keys one by one.
class ChangeKeys {
 public:
  explicit ChangeKeys(ExternalSorter<uint128_t>& sorter) : sorter_(sorter), keys_(kChangeBatch) {}
  // The next one, which stays the next; none at the end.
  Result<const ChangeKey*> Look() {
    if (known_) return &next_;
    if (at_ == count_) {
      QUARRY_TRY(count_, sorter_.Read(keys_));
      at_ = 0;
      if (count_ == 0) return nullptr;
    }
    next_ = ChangeKey::Of(keys_[at_++]);
    known_ = true;
    return &next_;
  }
  void Pass() { known_ = false; }

 private:
  ExternalSorter<uint128_t>& sorter_;
  std::vector<uint128_t> keys_;
  size_t at_ = 0, count_ = 0;
  ChangeKey next_;
  bool known_ = false;
};

// What happens to the edges of a list that have one neighbor.
struct PairChange {
  bool remove = false;
  std::vector<float> weights;  // of edges to be added, ascending by their bits
};

// Changes of one side, list after list.
class SideChange {
 public:
  SideChange(const TopologyRecord& record, const Topology& topology, Adjacency side,
             GraphChangeReport& report)
      : record_(record), topology_(topology), side_(side), report_(report) {}

  Result<ListEdits> Make(IoBackend& backend, ExternalSorter<uint128_t>& sorter,
                         const ProgressFunction& progress) {
    QUARRY_RETURN_IF_ERROR(sorter.Finish());
    QUARRY_TRY(neighbors_, EdgeColumnReader::Make(backend, topology_, side_, EdgeColumn::kNeighbors));
    if (record_.weighted) {
      QUARRY_TRY(weights_, EdgeColumnReader::Make(backend, topology_, side_, EdgeColumn::kWeights));
    }
    ChangeKeys keys(sorter);
    while (true) {
      QUARRY_TRY(const ChangeKey* const key, keys.Look());
      if (key == nullptr) break;
      if (progress && edits_.lists.size() % kChangeBatch == 0) {
        QUARRY_RETURN_IF_ERROR(progress("changing lists", key->list, topology_.node_count()));
      }
      QUARRY_RETURN_IF_ERROR(ChangeList(key->list, keys));
    }
    return std::move(edits_);
  }

 private:
  Status ChangeList(NodeId list, ChangeKeys& keys) {
    const std::span<const uint64_t> indptr = topology_.indptr(side_);
    QUARRY_TRY(old_, neighbors_->Read(indptr[list], indptr[list + 1]));
    if (weights_ != nullptr) {
      QUARRY_TRY(old_weights_, weights_->Read(indptr[list], indptr[list + 1]));
    }
    const size_t added_before = edits_.places.size(), removed_before = edits_.removed.size();
    list_added_ = list_removed_ = 0;
    size_t at = 0;
    while (true) {
      QUARRY_TRY(const ChangeKey* const key, keys.Look());
      if (key == nullptr || key->list != list) break;
      const NodeId neighbor = key->neighbor;
      QUARRY_TRY(const PairChange change, TakePair(keys));
      const auto from = old_.begin() + static_cast<std::ptrdiff_t>(at);
      const auto first = static_cast<size_t>(std::lower_bound(from, old_.end(), neighbor) - old_.begin());
      const auto end = static_cast<size_t>(std::upper_bound(from, old_.end(), neighbor) - old_.begin());
      record_.deduplicated ? ChangeSingle(neighbor, change, first, end)
                           : ChangeParallel(neighbor, change, first, end);
      at = end;
    }
    if (old_.size() + list_added_ > std::numeric_limits<uint32_t>::max()) {
      return MakeStatus(Code::kUnsupported,
                        "the list of node {} would have {} edges, which no run can number", list,
                        old_.size() + list_added_);
    }
    if (edits_.places.size() == added_before && edits_.removed.size() == removed_before) return Status::Ok();
    edits_.lists.push_back(list);
    edits_.added_ends.push_back(edits_.places.size());
    edits_.removed_ends.push_back(edits_.removed.size());
    return Status::Ok();
  }

  // The keys of one pair of nodes, which come next. Reverses come behind the edges that were given, and count where there
  // are none of those.
  Result<PairChange> TakePair(ChangeKeys& keys) {
    QUARRY_TRY(const ChangeKey* first, keys.Look());
    const ChangeKey pair = *first;
    PairChange change;
    std::optional<bool> reverse;
    double sum = 0;
    while (true) {
      QUARRY_TRY(const ChangeKey* const key, keys.Look());
      if (key == nullptr || key->list != pair.list || key->neighbor != pair.neighbor) break;
      if (!key->add) change.remove = true;
      if (key->add && key->reverse == reverse.value_or(key->reverse)) {
        reverse = key->reverse;
        sum += double{key->weight};
        change.weights.push_back(key->weight);
      }
      keys.Pass();
    }
    if (!record_.deduplicated || change.weights.empty()) return change;
    change.weights = {static_cast<float>(sum)};
    if (std::isfinite(change.weights[0])) return change;
    return MakeStatus(
        Code::kInvalidArgument,
        "the weights of the edges between node {} and node {} add up to {}, which float32 cannot hold",
        pair.neighbor, pair.list, sum);
  }

  void RemoveOld(size_t place) {
    edits_.removed.push_back(static_cast<uint32_t>(place));
    ++list_removed_;
  }
  // Before the old edge at `place`, or behind the last.
  void AddBefore(size_t place, NodeId neighbor, float weight) {
    edits_.places.push_back(static_cast<uint32_t>(place - list_removed_ + list_added_++));
    edits_.neighbors.push_back(neighbor);
    if (record_.weighted) edits_.weights.push_back(weight);
  }
  uint32_t OldWeightBits(size_t place) const { return old_weights_[place]; }

  void ChangeSingle(NodeId neighbor, const PairChange& change, size_t first, size_t end) {
    const bool there = first < end, add = !change.weights.empty();
    if (side_ == Adjacency::kCsc) {
      report_.absent += change.remove && !there ? 1 : 0;
      report_.present += add && there && !change.remove ? 1 : 0;
    }
    const bool same =
        there && add &&
        (!record_.weighted || OldWeightBits(first) == std::bit_cast<uint32_t>(change.weights[0]));
    if (same || (!add && !change.remove)) return;
    if (there) RemoveOld(first);
    if (add) AddBefore(end, neighbor, change.weights[0]);
  }

  // Equal edges lie in the order of the bits of their weights, as imports sort them.
  void ChangeParallel(NodeId neighbor, const PairChange& change, size_t first, size_t end) {
    if (side_ == Adjacency::kCsc && change.remove && first == end) ++report_.absent;
    size_t place = first;
    if (change.remove) {
      for (; place < end; ++place) RemoveOld(place);
    }
    for (const float weight : change.weights) {
      while (place < end && (!record_.weighted || OldWeightBits(place) <= std::bit_cast<uint32_t>(weight)))
        ++place;
      AddBefore(place, neighbor, weight);
    }
  }

  const TopologyRecord& record_;
  const Topology& topology_;
  const Adjacency side_;
  GraphChangeReport& report_;
  std::unique_ptr<EdgeColumnReader> neighbors_, weights_;
  std::span<const uint32_t> old_, old_weights_;  // the list as it is
  size_t list_added_ = 0, list_removed_ = 0;
  ListEdits edits_;
};

class GraphChangeImpl final : public GraphChange {
 public:
  GraphChangeImpl(Store& store, MemoryBudget& budget, const GraphChangeOptions& options,
                  TopologyRecord record, std::shared_ptr<const void> right,
                  MemoryBudget::Reservation reservation)
      : store_(store),
        budget_(budget),
        options_(options),
        record_(std::move(record)),
        right_(std::move(right)),
        reservation_(std::move(reservation)) {
    // Scratch files lie beside those that are written, and have no name once they are open.
    const ExternalSortOptions sort = {
        .memory_bytes = RoundDown(options.memory_bytes / (record_.has_csr ? 2 : 1), kPageBytes),
        .scratch_directory = store.path() + "/topology"};
    sorters_[0] = std::make_unique<ExternalSorter<uint128_t>>(store.backend(), sort);
    if (record_.has_csr) sorters_[1] = std::make_unique<ExternalSorter<uint128_t>>(store.backend(), sort);
  }

  Status Add(std::span<const Edge> edges, std::span<const float> weights) override {
    return Take(edges, weights, /*add=*/true);
  }
  Status Remove(std::span<const Edge> edges) override { return Take(edges, {}, /*add=*/false); }
  Result<GraphChangeReport> Commit() override;

 protected:
  const TopologyRecord& topology() const override { return record_; }
  const GraphChangeOptions& options() const override { return options_; }

 private:
  Status Take(std::span<const Edge> edges, std::span<const float> weights, bool add);
  Status AddKey(ChangeKey key);
  Result<TopologyRun> WriteRun(const Topology& topology, const TopologyRun& run);

  Store& store_;
  MemoryBudget& budget_;
  const GraphChangeOptions options_;
  const TopologyRecord record_;  // that the change is about: nobody else commits edges while right_ lives
  const std::shared_ptr<const void> right_;
  MemoryBudget::Reservation reservation_;
  std::unique_ptr<ExternalSorter<uint128_t>> sorters_[2];  // by Adjacency
  std::vector<uint128_t> keys_[2];
  uint64_t key_count_ = 0;  // of one side
  GraphChangeReport report_;
};

Status GraphChangeImpl::Take(std::span<const Edge> edges, std::span<const float> weights, bool add) {
  for (size_t i = 0; i < edges.size(); ++i) {
    ChangeKey key{.list = static_cast<NodeId>(edges[i].destination),
                  .neighbor = static_cast<NodeId>(edges[i].source),
                  .add = add};
    if (add && record_.weighted) key.weight = weights.empty() ? 1.0f : weights[i];
    QUARRY_RETURN_IF_ERROR(AddKey(key));
    if (!record_.undirected) continue;
    std::swap(key.list, key.neighbor);
    key.reverse = true;
    QUARRY_RETURN_IF_ERROR(AddKey(key));
  }
  for (const Adjacency side : {Adjacency::kCsc, Adjacency::kCsr}) {
    std::vector<uint128_t>& keys = keys_[static_cast<int>(side)];
    if (!keys.empty()) QUARRY_RETURN_IF_ERROR(sorters_[static_cast<int>(side)]->Add(keys));
    keys.clear();
  }
  return Status::Ok();
}

Status GraphChangeImpl::AddKey(ChangeKey key) {
  ++key_count_;
  for (const Adjacency side : {Adjacency::kCsc, Adjacency::kCsr}) {
    const int index = static_cast<int>(side);
    if (sorters_[index] == nullptr) continue;
    keys_[index].push_back(key.Packed());
    std::swap(key.list, key.neighbor);
    if (keys_[index].size() < kChangeBatch) continue;
    QUARRY_RETURN_IF_ERROR(sorters_[index]->Add(keys_[index]));
    keys_[index].clear();
  }
  return Status::Ok();
}

Result<TopologyRun> GraphChangeImpl::WriteRun(const Topology& topology, const TopologyRun& run) {
  const std::shared_ptr<const Manifest> manifest = store_.manifest();
  QUARRY_TRY(const auto writer, TopologyRunWriter::Create(store_.backend(), store_.path(), record_, run));
  for (const Adjacency side : {Adjacency::kCsc, Adjacency::kCsr}) {
    std::unique_ptr<ExternalSorter<uint128_t>>& sorter = sorters_[static_cast<int>(side)];
    if (sorter == nullptr) continue;
    QUARRY_TRY(
        const ListEdits edits,
        SideChange(record_, topology, side, report_).Make(store_.backend(), *sorter, options_.progress));
    sorter.reset();
    report_.added = edits.places.size();
    report_.removed = edits.removed.size();
    QUARRY_RETURN_IF_ERROR(writer->Add(side, edits));
    KillPoint("edges: a side of the run written");
  }
  return writer->Finish(manifest->database_id);
}

Result<GraphChangeReport> GraphChangeImpl::Commit() {
  const ScopedSpan span("commit edges");
  report_.edge_count = record_.edge_count;
  report_.runs = record_.runs.size();
  report_.timestamp = record_.timestamp();
  if (key_count_ == 0) return report_;
  TopologyRun run = NextRunOf(record_);
  run.timestamp = record_.timestamp();
  QUARRY_RETURN_IF_ERROR(ClearTopologyFile(store_, run.file));
  {
    QUARRY_TRY(const MemoryBudget::Reservation reservation,
               budget_.Reserve(Topology::ResidentBytes(record_) + kReadersBytes +
                                   2 * ListEdits::MemoryBytes(key_count_, key_count_, key_count_),
                               "changing edges"));
    QUARRY_TRY(const std::unique_ptr<Topology> topology, store_.OpenTopology(record_.name));
    const Result<TopologyRun> written = WriteRun(*topology, run);
    if (!written.ok() || written->lists == 0) {  // an error, or nothing has changed
      Discard(store_.backend(), store_.path() + "/" + run.file);
      if (!written.ok()) return written.status();
      return report_;
    }
    run = *written;
  }
  QUARRY_TRY(report_.timestamp, store_.CommitRun(record_.name, run));
  KillPoint("edges: committed, not merged");
  // The edges are there, whatever becomes of the merge: the next commit tries it again.
  if (const Status merged = MergeRuns(store_, budget_, record_.name); !merged.ok()) {
    LogInfo("{}: runs of edges were not merged: {}", store_.path(), merged.message());
  }
  const std::shared_ptr<const Manifest> manifest = store_.manifest();
  const TopologyRecord& now = *manifest->FindTopology(record_.name);
  report_.edge_count = now.edge_count;
  report_.runs = now.runs.size();
  return report_;
}

}  // namespace

Result<std::unique_ptr<EdgeReader>> OpenEdgeFile(const std::string& path, const std::string& weights_path) {
  QUARRY_TRY(Dataset source, OpenDataset(path, {}));
  if (source.edges.size() != 1) {
    return MakeStatus(Code::kInvalidArgument, "{}: {} lists of edges, where one is expected", path,
                      source.edges.size());
  }
  return WithWeights(std::move(source.edges[0].reader), weights_path);
}

template <typename Take>
Status GraphChange::TakeAll(EdgeReader& edges, const Take& take) {
  const uint64_t nodes = topology().node_count;
  std::vector<Edge> batch(kChangeBatch);
  uint64_t first = 0;
  while (true) {
    QUARRY_TRY(const size_t n, edges.Read(batch));
    if (n == 0) return Status::Ok();
    for (size_t i = 0; i < n; ++i) {
      const uint64_t largest = std::max(batch[i].source, batch[i].destination);
      if (largest < nodes) continue;
      return MakeStatus(Code::kInvalidArgument, "{}: node id {} is out of range; there are {} nodes, 0 to {}",
                        edges.Position(first + i), largest, nodes, nodes - 1);
    }
    QUARRY_RETURN_IF_ERROR(take(std::span<const Edge>(batch).first(n), edges.weights()));
    first += n;
    if (options().progress) {
      QUARRY_RETURN_IF_ERROR(options().progress("reading edges", edges.bytes_read(), edges.bytes_total()));
    }
  }
}

Status GraphChange::AddAll(EdgeReader& edges) {
  if (edges.weighted() && !topology().weighted) {
    return MakeStatus(
        Code::kInvalidArgument,
        "the edges have weights, and those of topology \"{}\" have none: leave them out, or import the "
        "graph with weights",
        topology().name);
  }
  return TakeAll(edges, [this](std::span<const Edge> batch, std::span<const float> weights) {
    return Add(batch, weights);
  });
}

Status GraphChange::RemoveAll(EdgeReader& edges) {
  return TakeAll(edges,
                 [this](std::span<const Edge> batch, std::span<const float>) { return Remove(batch); });
}

Result<std::unique_ptr<GraphChange>> GraphChange::Create(Store& store, MemoryBudget& budget,
                                                         const GraphChangeOptions& options) {
  if (options.memory_bytes < kGraphChangeBytesMin) {
    return MakeStatus(Code::kOutOfBudget, "changing edges needs at least {} for sorting; {} are given",
                      FormatBytes(kGraphChangeBytesMin), FormatBytes(options.memory_bytes));
  }
  std::shared_ptr<const void> right = store.HoldRuns(Store::RunsRight::kMake);
  if (right == nullptr) {
    return MakeStatus(Code::kBusy, "{}: edges are being added or removed by another: wait for it",
                      store.path());
  }
  QUARRY_RETURN_IF_ERROR(store.PrepareToWrite());
  const std::shared_ptr<const Manifest> manifest = store.manifest();
  const TopologyRecord* const record = manifest->FindTopology(options.topology);
  if (record == nullptr) return store.OpenTopology(options.topology).status();
  if (record->relation_count > 1) {
    return MakeStatus(
        Code::kUnsupported,
        "{}: topology \"{}\" has {} relations: edges of several relations can only be imported whole",
        store.path(), record->name, record->relation_count);
  }
  QUARRY_TRY(MemoryBudget::Reservation reservation, budget.Reserve(options.memory_bytes, "sorting edges"));
  return std::unique_ptr<GraphChange>(std::make_unique<GraphChangeImpl>(
      store, budget, options, *record, std::move(right), std::move(reservation)));
}

}  // namespace quarry
