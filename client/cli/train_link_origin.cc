// Where link prediction has its edges from and keeps its checkpoints: a database that is open in this process, whose
// tables and memory are here too; or a server's, where vectors, batches and ranking are here all the same.
#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "opened_store.h"
#include "quarry/base/log.h"
#include "quarry/base/units.h"
#include "quarry/database.h"
#include "quarry/format/wire.h"
#include "quarry/partition/stored_partitioning.h"
#include "quarry/storage/edges.h"
#include "quarry/storage/topology_run.h"
#include "quarry/storage/training_state.h"
#include "quarry/trainer/link_features.h"
#include "remote_states.h"
#include "server_address.h"
#include "train_link.h"
#include "train_targets.h"

namespace quarry::cli {
namespace {

constexpr uint64_t kPieceEdges = 256 << 10;  // 3 MiB: small beside what the edges take here
constexpr uint64_t kFileShare = 512;         // part of a state that covers its checksums, 4 bytes a page
constexpr uint64_t kEdgesMax = UINT32_MAX;   // that can be put in order

Status CheckEdges(const Manifest& manifest) {
  for (const TopologyRecord& topology : manifest.topologies) {
    if (topology.edge_count <= kEdgesMax) continue;
    return MakeStatus(Code::kUnsupported, "topology \"{}\" has {} edges; at most {} can be trained on",
                      topology.name, topology.edge_count, kEdgesMax);
  }
  return Status::Ok();
}

// What a session needs for the server to hold so much for it: two eighths of it are shared memory.
uint64_t SessionBytes(uint64_t bytes) { return bytes / 3 * 4 + 4 * kMiB; }

// A session with so much of the server's memory, and no less.
Result<std::unique_ptr<client::Store>> OpenSession(const LinkArguments& arguments, uint64_t memory_bytes) {
  return client::OpenRemote(arguments.path, {.memory_bytes = memory_bytes,
                                             .memory_bytes_min = memory_bytes,
                                             .timeout_seconds = kTrainerTimeoutSeconds,
                                             .inline_only = arguments.inline_only});
}

// All edges of a topology, of one list: the record's, and kBusy where the server has another by now; or, `newest`, the one
// that the server has, which is read anew when edges come or go meanwhile. The server keeps it open until its last edge is
// given.
Result<std::vector<Triple>> ReadTriples(const LinkArguments& arguments, const TopologyRecord& record,
                                        bool newest) {
  QUARRY_TRY(const auto store, OpenSession(arguments, SessionBytes(EdgeList::Bytes(record))));
  uint64_t list = newest ? 0 : EdgeList::NumberOf(record);
  std::vector<Triple> triples;
  triples.reserve(record.edge_count);
  while (true) {
    const auto numbers = store->ReadEdges(record.name, triples.size(), kPieceEdges, &list);
    if (numbers.status().code() == Code::kBusy && newest && !triples.empty()) {
      triples.clear();
      list = 0;
      continue;
    }
    QUARRY_RETURN_IF_ERROR(numbers.status());
    for (size_t i = 0; i < numbers->size(); i += 3) {
      triples.push_back({(*numbers)[i], (*numbers)[i + 1], (*numbers)[i + 2]});
    }
    if (numbers->size() < 3 * kPieceEdges) return triples;
  }
}

// What TrainNewestLinks asks a server for.
class ServerEdges {
 public:
  ServerEdges(const LinkArguments& arguments, MemoryBudget& budget, std::unique_ptr<client::Store> session)
      : arguments_(arguments), budget_(budget), session_(std::move(session)) {}

  // Rows that were put change no edges.
  Result<bool> IsNewer() {
    QUARRY_TRY(const Manifest now, ManifestOf(*session_, arguments_.path));
    return StructureTimestamp(now) > seen_;
  }

  Result<LinkData> Load() {
    QUARRY_TRY(seen_, LastCommit());
    QUARRY_TRY(const Manifest before, ManifestOf(*session_, arguments_.path));
    QUARRY_RETURN_IF_ERROR(CheckEdges(before));
    if (!std::exchange(checked_, true)) {
      // For a moment, so that a budget that is too small says what would do before anything is read.
      QUARRY_RETURN_IF_ERROR(
          budget_.Reserve(LinkMemoryBytes(before, arguments_.train), "edges, batches and vectors").status());
    }
    QUARRY_RETURN_IF_ERROR(ReadTopologies(before));
    // Nodes only come: those of the edges are there by now.
    LinkSource source{.path = arguments_.path, .read = [this](const TopologyRecord& record) {
                        return Result<std::vector<Triple>>(std::move(edges_[record.name]));
                      }};
    QUARRY_TRY(source.manifest, ManifestOf(*session_, arguments_.path));
    for (const auto& [name, edges] : edges_) {
      std::ranges::find(source.manifest.topologies, name, &TopologyRecord::name)->edge_count = edges.size();
    }
    reserved_.Release();  // LoadLinkData has them reserved from here on
    QUARRY_TRY(LinkData data, LoadLinkData(source, budget_, arguments_.shares));
    LogInfo("as of commit {}: {}", seen_, DescribeLinks(data));
    return data;
  }

 private:
  Result<uint64_t> LastCommit() {
    QUARRY_TRY(const std::unique_ptr<client::Snapshot> now, session_->TakeSnapshot());
    return now->timestamp();
  }
  Status ReadTopologies(const Manifest& manifest) {
    edges_.clear();
    reserved_.Release();
    uint64_t count = 0;
    std::vector<const TopologyRecord*> records;
    for (const char* const name : {"graph", "valid", "test"}) {
      const TopologyRecord* const record = manifest.FindTopology(name);
      if (record == nullptr) continue;
      records.push_back(record);
      count += record->edge_count;
    }
    QUARRY_TRY(reserved_, budget_.Reserve(count * sizeof(Triple), "the edges"));
    for (const TopologyRecord* const record : records) {
      QUARRY_TRY(edges_[record->name], ReadTriples(arguments_, *record, /*newest=*/true));
    }
    return Status::Ok();
  }

  const LinkArguments& arguments_;
  MemoryBudget& budget_;
  const std::unique_ptr<client::Store> session_;
  uint64_t seen_ = 0;  // the last commit before what Load gave last
  bool checked_ = false;
  MemoryBudget::Reservation reserved_;
  std::map<std::string, std::vector<Triple>> edges_;  // by topology, on their way
};

// The widest vectors whose checkpoints a server takes; 0: none.
uint32_t LargestDim(const Manifest& manifest, LinkTrainOptions train) {
  uint32_t fits = 0;
  for (uint32_t too_wide = train.spec.dim; too_wide - fits > 1;) {
    train.spec.dim = fits + (too_wide - fits) / 2;
    (LinkStateBytes(manifest, train) <= wire::kStateBytesMax ? fits : too_wide) = train.spec.dim;
  }
  return fits;
}

Status CheckStateBytes(uint64_t state_bytes, const Manifest& manifest, const LinkTrainOptions& train) {
  if (state_bytes <= wire::kStateBytesMax) return Status::Ok();
  const uint32_t dim = LargestDim(manifest, train);
  return MakeStatus(
      Code::kUnsupported,
      "a checkpoint has all vectors, {}{}, and a server takes at most {}{}: train on the database "
      "itself, or without --checkpoint-every",
      FormatBytes(state_bytes), train.patience > 0 ? " with those of the best epoch" : "",
      FormatBytes(wire::kStateBytesMax), dim == 0 ? "" : fmt::format(" (with --dim {} or less)", dim));
}

// The columns of the features that are asked for; 0: of none.
Result<uint32_t> FeatureColumns(const LinkArguments& arguments, const Manifest& manifest) {
  if (arguments.features.empty()) return 0U;
  const TableRecord* const table = manifest.FindTable(arguments.features);
  if (table == nullptr) {
    std::string names;
    for (const TableRecord& other : manifest.tables) names += (names.empty() ? "" : ", ") + other.name;
    return MakeStatus(Code::kNotFound, "{}: there is no table \"{}\" of features; there are {}",
                      arguments.path, arguments.features, names.empty() ? "none" : names);
  }
  if (table->row_count == manifest.node_count) return static_cast<uint32_t>(table->dim);
  return MakeStatus(Code::kInvalidArgument, "{}: table \"{}\" has {} rows, and not one for each of {} nodes",
                    arguments.path, table->name, table->row_count, manifest.node_count);
}

class DatabaseLinks final : public LinkOrigin {
 public:
  DatabaseLinks(LinkArguments& arguments, std::unique_ptr<client::Store> store)
      : arguments_(arguments),
        run_(arguments.run),
        opened_(std::move(store)),
        store_(opened_->database()->store()),
        budget_(opened_->database()->budget()) {}

  MemoryBudget& budget() override { return budget_; }

  Result<LinkData> LoadData() override {
    if (arguments_.partitioned) {
      QUARRY_TRY(partitioning_, StoredPartitioning::Open(store_, budget_, arguments_.partitioning));
      run_.partitioning = partitioning_.get();
      run_.road = arguments_.road;
      return LoadPartedLinkData(store_, *partitioning_, budget_);
    }
    const std::shared_ptr<const Manifest> manifest = store_.manifest();
    QUARRY_TRY(arguments_.train.feature_dim, FeatureColumns(arguments_, *manifest));
    arguments_.train.feature_table = arguments_.features;
    QUARRY_RETURN_IF_ERROR(PlaceVectors());
    QUARRY_TRY(LinkData data, LoadLinkData(store_, budget_, arguments_.shares));
    if (arguments_.train.feature_dim == 0) return data;
    QUARRY_TRY(const std::shared_ptr<TargetRows> rows, OpenTargets(*opened_, *manifest, arguments_.features));
    const LinkFeatures features{.table = arguments_.features,
                                .read = [&](std::span<const NodeId> nodes, std::span<float> into) {
                                  return rows->Read(nodes, into);
                                }};
    QUARRY_RETURN_IF_ERROR(LoadFeatures(features, arguments_.train, budget_, data));
    return data;
  }

  Result<std::unique_ptr<LinkRun>> OpenRun(const LinkData& data) override {
    if (arguments_.train.feature_dim > 0 && run_.keep) {
      states_ = TrainingStatesOf(store_);
      return LinkRun::OpenInState(*states_, budget_, data, arguments_.train, run_);
    }
    if (in_memory_) return std::unique_ptr<LinkRun>();
    return LinkRun::Open(store_, budget_, data, arguments_.train, run_);
  }

 private:
  // Vectors are stored where the user wants to keep them, or where memory has no room for all. Refuses a budget as a whole:
  // the least that would do is for all of it.
  Status PlaceVectors() {
    const std::shared_ptr<const Manifest> manifest = store_.manifest();
    if (arguments_.train.feature_dim > 0) {
      in_memory_ = true;
      const LinkTables tables = run_.keep ? LinkTables::kInState : LinkTables::kMemory;
      return budget_
          .Reserve(LinkMemoryBytes(*manifest, arguments_.train, tables),
                   "edges, batches and the features of nodes")
          .status();
    }
    const uint64_t in_memory = LinkMemoryBytes(*manifest, arguments_.train);
    const uint64_t stored = LinkMemoryBytes(*manifest, arguments_.train, LinkTables::kStored);
    QUARRY_RETURN_IF_ERROR(budget_
                               .Reserve(run_.keep ? stored : std::min(stored, in_memory),
                                        "edges, batches and the least of vectors")
                               .status());
    in_memory_ = !run_.keep && in_memory <= budget_.available_bytes();
    if (in_memory_) return Status::Ok();
    LogInfo("vectors are stored in the database{}",
            run_.keep ? fmt::format(", as those of run \"{}\"", run_.name)
                      : fmt::format(" while they are trained: in memory they would take --memory {}",
                                    FormatBytes(in_memory)));
    return Status::Ok();
  }

  LinkArguments& arguments_;
  LinkRunOptions run_;
  const std::unique_ptr<client::Store> opened_;
  Store& store_;
  MemoryBudget& budget_;
  std::unique_ptr<StoredPartitioning> partitioning_;
  std::unique_ptr<TrainingStates> states_;  // of a run over features
  bool in_memory_ = false;
};

// The server needs memory for one topology at a time, and only meanwhile.
class ServerLinks final : public LinkOrigin {
 public:
  explicit ServerLinks(const LinkArguments& arguments)
      : arguments_(arguments), budget_(arguments.memory_bytes) {}

  MemoryBudget& budget() override { return budget_; }

  Result<LinkData> LoadData() override {
    LinkSource source{.path = arguments_.path, .read = [this](const TopologyRecord& record) {
                        return ReadTriples(arguments_, record, /*newest=*/false);
                      }};
    QUARRY_TRY(source.manifest, ReadManifest());
    QUARRY_RETURN_IF_ERROR(CheckEdges(source.manifest));
    const bool keep = arguments_.run.keep;
    if (keep) QUARRY_RETURN_IF_ERROR(OpenStates(source.manifest));
    // For a moment, so that a budget that is too small says what would do before anything is read.
    const LinkTables tables = keep ? LinkTables::kInState : LinkTables::kMemory;
    QUARRY_RETURN_IF_ERROR(
        budget_
            .Reserve(LinkMemoryBytes(source.manifest, arguments_.train, tables),
                     keep ? "edges, batches, vectors and their checkpoints" : "edges, batches and vectors")
            .status());
    return LoadLinkData(source, budget_, arguments_.shares);
  }

  Result<std::unique_ptr<LinkRun>> OpenRun(const LinkData& data) override {
    if (states_ == nullptr) return std::unique_ptr<LinkRun>();
    LogInfo("run \"{}\": a checkpoint is of {}, and the server's", arguments_.run.name,
            FormatBytes(state_bytes_));
    return LinkRun::OpenInState(*states_, budget_, data, arguments_.train, arguments_.run);
  }

 private:
  // In a session that ends with it: those that come after it take all that a full server has room for.
  Result<Manifest> ReadManifest() {
    QUARRY_TRY(const auto store,
               client::OpenRemote(arguments_.path, {.memory_bytes = 1,
                                                    .timeout_seconds = kTrainerTimeoutSeconds,
                                                    .inline_only = arguments_.inline_only}));
    return ManifestOf(*store, arguments_.path);
  }
  // The states of the server's runs, in a session of their own that has room for one of this training: so that no checkpoint
  // is refused for others who have come in between. kUnsupported for a state that is larger than a server takes, kOutOfBudget
  // for one that this server has no memory for, with what would do.
  Status OpenStates(const Manifest& manifest) {
    state_bytes_ = LinkStateBytes(manifest, arguments_.train);
    QUARRY_RETURN_IF_ERROR(CheckStateBytes(state_bytes_, manifest, arguments_.train));
    // The file of a state, which is read as a whole, has checksums beside it.
    auto session = OpenSession(arguments_, SessionBytes(state_bytes_ + state_bytes_ / kFileShare));
    if (!session.ok()) {
      return MakeStatus(session.status().code(),
                        "a checkpoint has all vectors, {}, which the server holds to save it: {}",
                        FormatBytes(state_bytes_), session.status().message());
    }
    session_ = *std::move(session);
    states_ = StatesOf(*session_, arguments_.path);
    return Status::Ok();
  }

  const LinkArguments& arguments_;
  MemoryBudget budget_;
  uint64_t state_bytes_ = 0;
  std::unique_ptr<client::Store> session_;
  std::unique_ptr<TrainingStates> states_;
};

}  // namespace

std::string DescribeLinks(const LinkData& data) {
  return fmt::format("{} nodes, {} relations, {} + {} + {} edges", data.node_count, data.relation_count,
                     data.train_count(), data.valid.size(), data.test.size());
}

Result<NewestLinks> OpenNewestLinks(const LinkArguments& arguments, MemoryBudget& budget) {
  QUARRY_TRY(auto session, OpenSession(arguments, 1));
  const auto edges = std::make_shared<ServerEdges>(arguments, budget, std::move(session));
  return NewestLinks{.is_newer = [edges] { return edges->IsNewer(); },
                     .load = [edges] { return edges->Load(); }};
}

Result<std::unique_ptr<LinkOrigin>> OpenLinkOrigin(LinkArguments& arguments) {
  if (IsServerAddress(arguments.path)) return std::make_unique<ServerLinks>(arguments);
  QUARRY_TRY(auto store, client::Open(arguments.path, {.memory_bytes = arguments.memory_bytes}));
  return std::make_unique<DatabaseLinks>(arguments, std::move(store));
}

}  // namespace quarry::cli
