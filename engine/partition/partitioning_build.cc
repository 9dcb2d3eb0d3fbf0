#include <algorithm>
#include <numeric>

#include "bucket_writer.h"
#include "partition_file.h"
#include "partition_place.h"
#include "quarry/base/kill_point.h"
#include "quarry/base/process.h"
#include "quarry/base/trace.h"
#include "quarry/format/batch_view.h"
#include "quarry/io/buffer.h"
#include "quarry/partition/auto_tune.h"
#include "quarry/partition/edge_source.h"
#include "quarry/partition/stored_partitioning.h"
#include "quarry/storage/node_properties.h"
#include "quarry/storage/partition_files.h"
#include "quarry/storage/times.h"
#include "renewed_buckets.h"
#include "row_scatter.h"

namespace quarry {
namespace {

constexpr uint64_t kPartsWriterBytes = 4 * kMiB;

Status CheckPartitioningName(std::string_view name) {
  constexpr std::string_view kCharacters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_";
  if (!name.empty() && name.size() <= 100 && name.find_first_not_of(kCharacters) == std::string_view::npos) {
    return Status::Ok();
  }
  return MakeStatus(Code::kUsage, "partitioning name \"{}\": letters, digits, - and _ are allowed", name);
}

Status CheckPartCount(uint32_t parts) {
  if (parts >= 1 && parts <= kPartsMax) return Status::Ok();
  return MakeStatus(Code::kUsage, "{} parts: a partitioning has 1 to {}", parts, kPartsMax);
}

class PartitioningBuilder {
 public:
  // `start_seconds`: when the work began that the build is the end of.
  PartitioningBuilder(Store& store, MemoryBudget& budget, const PartitioningSpec& spec,
                      const ProgressFunction& progress, double start_seconds)
      : store_(store), budget_(budget), spec_(spec), progress_(progress), start_seconds_(start_seconds) {}

  Result<PartitioningRecord> Run(Assignment assignment);

 private:
  Status Check(const Assignment& assignment);
  Status Renumber(Assignment assignment);
  Status WriteIds(DataFileWriter& writer);
  Status WriteLabels(DataFileWriter& writer);
  Status CountSplits(const File& file, uint64_t labels_at, uint64_t splits_at);
  Status WriteFile();
  PartitioningRecord Describe() const;

  Store& store_;
  MemoryBudget& budget_;
  const PartitioningSpec spec_;
  const ProgressFunction& progress_;
  const double start_seconds_;

  std::shared_ptr<const Snapshot> snapshot_;
  TopologyRecord topology_;
  TableRecord table_;  // without a name: none
  PartitioningPlace place_;
  MemoryBudget::Reservation ids_reservation_;
  std::vector<NodeId> new_ids_;  // by old id
  PartitionDirectory directory_;
  uint64_t file_bytes_ = 0;
};

Status PartitioningBuilder::Check(const Assignment& assignment) {
  QUARRY_RETURN_IF_ERROR(CheckPartitioningName(spec_.name));
  QUARRY_RETURN_IF_ERROR(CheckPartCount(assignment.parts));
  QUARRY_TRY(snapshot_, store_.TakeSnapshot());
  const TopologyRecord* const topology = snapshot_->FindTopology(spec_.topology);
  if (topology == nullptr) return store_.OpenTopology(spec_.topology).status();
  topology_ = *topology;
  if (!spec_.table.empty()) {
    const TableRecord* const table = snapshot_->FindTable(spec_.table);
    if (table == nullptr) return store_.OpenTable(spec_.table).status();
    table_ = *table;
    if (table_.row_count != topology_.node_count) {
      return MakeStatus(Code::kInvalidArgument, "{}: table \"{}\" has {} rows for {} nodes", store_.path(),
                        table_.name, table_.row_count, topology_.node_count);
    }
  }
  if (assignment.part_of.size() != topology_.node_count) {
    return MakeStatus(Code::kInvalidArgument, "{}: an assignment of {} nodes, and topology \"{}\" has {}",
                      store_.path(), assignment.part_of.size(), topology_.name, topology_.node_count);
  }
  const auto outside =
      std::ranges::find_if(assignment.part_of, [&](uint32_t part) { return part >= assignment.parts; });
  if (outside == assignment.part_of.end()) return Status::Ok();
  return MakeStatus(Code::kInvalidArgument, "{}: node {} is assigned to part {}, and there are {}",
                    store_.path(), outside - assignment.part_of.begin(), *outside, assignment.parts);
}

// Takes the assignment's memory for the new ids: those of a part follow one another, in the order of the old.
Status PartitioningBuilder::Renumber(Assignment assignment) {
  std::vector<uint64_t> next = assignment.Sizes();
  std::exclusive_scan(next.begin(), next.end(), next.begin(), uint64_t{0});
  directory_.part_starts = next;
  directory_.part_starts.push_back(assignment.part_of.size());
  new_ids_ = std::move(assignment.part_of);
  for (NodeId& id : new_ids_) id = static_cast<NodeId>(next[id]++);
  return Status::Ok();
}

Status PartitioningBuilder::WriteIds(DataFileWriter& writer) {
  const ScopedSpan span("write the maps of nodes");
  const auto write = [&](std::string_view name, std::span<const NodeId> ids) -> Status {
    writer.BeginSection(name, DataFileWriter::Cover::kPages, ids.size_bytes());
    QUARRY_RETURN_IF_ERROR(writer.Append(std::as_bytes(ids)));
    return writer.EndSection();
  };
  QUARRY_RETURN_IF_ERROR(write(kNewIdsSection, new_ids_));
  QUARRY_TRY(const auto reservation,
             budget_.Reserve(new_ids_.size() * sizeof(NodeId), "the map of a partitioning's nodes"));
  std::vector<NodeId> old_ids(new_ids_.size());
  for (size_t old_id = 0; old_id < new_ids_.size(); ++old_id) {
    old_ids[new_ids_[old_id]] = static_cast<NodeId>(old_id);
  }
  return write(kOldIdsSection, old_ids);
}

// Labels and splits, where the database has both: what node classification needs of a part beside its rows.
Status PartitioningBuilder::WriteLabels(DataFileWriter& writer) {
  const TableRecord* const labels = snapshot_->FindTable("label");
  const TableRecord* const splits = snapshot_->FindTable("split");
  if (labels == nullptr || splits == nullptr) return Status::Ok();
  for (const TableRecord* const table : {labels, splits}) {
    const ElementType type = table == labels ? ElementType::kInt64 : ElementType::kUint8;
    if (table->element_type == type && table->dim == 1 && table->row_count == topology_.node_count) continue;
    return MakeStatus(Code::kCorruption, "{}: table \"{}\" has {} x {} of {}, expected {} x 1 of {}",
                      store_.path(), table->name, table->row_count, table->dim,
                      ElementTypeName(table->element_type), topology_.node_count, ElementTypeName(type));
  }
  const auto scatter = [&](const TableRecord& table, std::string_view section, uint64_t bytes) {
    return ScatterRows({store_, snapshot_, table, section, bytes, bytes}, budget_, directory_, new_ids_,
                       progress_, writer);
  };
  const uint64_t labels_at = writer.position();
  QUARRY_RETURN_IF_ERROR(scatter(*labels, kPartLabelsSection, sizeof(int64_t)));
  const uint64_t splits_at = writer.position();
  QUARRY_RETURN_IF_ERROR(scatter(*splits, kPartSplitsSection, sizeof(uint8_t)));
  return CountSplits(writer.file(), labels_at, splits_at);
}

// Reads back what was written of them, part by part.
Status PartitioningBuilder::CountSplits(const File& file, uint64_t labels_at, uint64_t splits_at) {
  uint64_t largest = 0;
  for (uint32_t part = 0; part < directory_.parts(); ++part) {
    largest = std::max(largest, directory_.BytesOf(part, sizeof(int64_t)));
  }
  if (largest == 0) return Status::Ok();
  QUARRY_TRY(const auto reservation,
             budget_.Reserve(2 * IoBuffer::MappedBytes(largest), "counting a partitioning's splits"));
  QUARRY_TRY(const IoBuffer labels, IoBuffer::Allocate(largest));
  QUARRY_TRY(const IoBuffer splits, IoBuffer::Allocate(largest));
  int64_t most = -1;
  for (uint32_t part = 0; part < directory_.parts(); ++part) {
    SplitCounts& counts = directory_.splits.emplace_back();
    const uint64_t nodes = directory_.part_nodes(part);
    if (nodes == 0) continue;
    QUARRY_RETURN_IF_ERROR(
        store_.backend().ReadAt(file, labels_at + directory_.OffsetOf(part, sizeof(int64_t)),
                                labels.span().first(directory_.BytesOf(part, sizeof(int64_t)))));
    QUARRY_RETURN_IF_ERROR(
        store_.backend().ReadAt(file, splits_at + directory_.OffsetOf(part, sizeof(uint8_t)),
                                splits.span().first(directory_.BytesOf(part, sizeof(uint8_t)))));
    for (uint64_t node = 0; node < nodes; ++node) {
      const int64_t label = reinterpret_cast<const int64_t*>(labels.data())[node];
      const auto split = static_cast<Split>(splits.data()[node]);
      most = std::max(most, label);
      if (split == Split::kNone || split > Split::kTest || (split == Split::kTrain && label < 0)) continue;
      ++counts.nodes[static_cast<size_t>(split) - 1];
    }
  }
  // Too large a label is for node classification to refuse: edges can be trained on all the same.
  constexpr uint32_t kMost = PartitionDirectory::kClassesMax;
  directory_.class_count = most >= kMost ? kMost : static_cast<uint32_t>(most + 1);
  return Status::Ok();
}

Status PartitioningBuilder::WriteFile() {
  QUARRY_TRY(const auto writer_reservation,
             budget_.Reserve(IoBuffer::MappedBytes(kPartsWriterBytes) + kMiB, "writing a partitioning"));
  QUARRY_TRY(const std::unique_ptr<DataFileWriter> writer,
             DataFileWriter::Create(store_.backend(), fmt::format("{}/{}", place_.building, kPartsFile),
                                    kPartsWriterBytes));
  QUARRY_RETURN_IF_ERROR(WriteIds(*writer));
  if (!table_.name.empty()) {
    directory_.row_bytes = RowBytes(table_.element_type, table_.dim);
    directory_.row_stride = RowStride(table_.element_type, table_.dim);
    QUARRY_RETURN_IF_ERROR(ScatterRows(
        {store_, snapshot_, table_, kPartRowsSection, directory_.row_bytes, directory_.row_stride}, budget_,
        directory_, new_ids_, progress_, *writer));
    QUARRY_RETURN_IF_ERROR(WriteLabels(*writer));
  }
  QUARRY_RETURN_IF_ERROR(WriteBuckets(store_, budget_, topology_, place_.building, std::move(new_ids_),
                                      std::move(ids_reservation_), progress_, directory_, *writer));
  QUARRY_RETURN_IF_ERROR(WritePartitionDirectory(*writer, directory_));
  QUARRY_TRY(file_bytes_, writer->Finish({.kind = FileKind::kPartitioning,
                                          .database_id = store_.manifest()->database_id,
                                          .generation = place_.generation,
                                          .row_count = topology_.node_count,
                                          .dim = directory_.parts(),
                                          .edge_count = topology_.edge_count}));
  KillPoint("partition: file written");
  return store_.backend().SyncDirectory(place_.building);
}

PartitioningRecord PartitioningBuilder::Describe() const {
  return {.name = spec_.name,
          .directory = PartitioningFolder(spec_.name, place_.generation),
          .generation = place_.generation,
          .topology = topology_.name,
          .topology_generation = topology_.generation,
          .table = table_.name,
          .table_generation = table_.generation,
          .timestamp = snapshot_->timestamp,
          .method = spec_.method,
          .seed = spec_.seed,
          .part_count = directory_.parts(),
          .node_count = topology_.node_count,
          .edge_count = topology_.edge_count,
          .cut_edges = directory_.CutEdges(),
          .file_bytes = file_bytes_,
          .build_seconds = MonotonicSeconds() - start_seconds_,
          .created_utc = UtcNow()};
}

Result<PartitioningRecord> PartitioningBuilder::Run(Assignment assignment) {
  QUARRY_RETURN_IF_ERROR(Check(assignment));
  QUARRY_TRY(ids_reservation_, budget_.Reserve(assignment.part_of.size() * sizeof(NodeId),
                                               "the map of a partitioning's nodes"));
  QUARRY_TRY(place_, PreparePartitioning(store_, spec_.name));
  QUARRY_RETURN_IF_ERROR(Renumber(std::move(assignment)));
  QUARRY_RETURN_IF_ERROR(WriteFile());
  const PartitioningRecord record = Describe();
  QUARRY_RETURN_IF_ERROR(CommitPartitioning(store_, place_, record));
  return record;
}

}  // namespace

namespace {

// Gives the training nodes parts of their own, in front: nodes are put in a row, training nodes first, each half by
// part and by number, and the row is cut into parts of one size.
Status PutTrainingFirst(Store& store, MemoryBudget& budget, Assignment& assignment) {
  const uint64_t nodes = assignment.part_of.size();
  const std::shared_ptr<const Manifest> manifest = store.manifest();
  QUARRY_TRY(const auto reservation,
             budget.Reserve(NodePropertiesBytes(*manifest) + nodes / 4, "the training nodes"));
  QUARRY_TRY(const std::shared_ptr<const Snapshot> snapshot, store.TakeSnapshot());
  std::vector<bool> is_training(nodes);
  {
    QUARRY_TRY(const NodeProperties properties, LoadNodeProperties(store, nodes, snapshot));
    const std::vector<NodeId> training = properties.TrainNodes();
    if (training.empty()) {
      return MakeStatus(Code::kInvalidArgument, "{}: there is no labelled training node to put first",
                        store.path());
    }
    for (const NodeId node : training) is_training[node] = true;
  }
  // By part: where its training nodes stand in the row, and its other ones.
  std::vector<uint64_t> next(2 * uint64_t{assignment.parts});
  const auto group_of = [&](uint64_t node) {
    return assignment.part_of[node] + (is_training[node] ? 0 : uint64_t{assignment.parts});
  };
  for (uint64_t node = 0; node < nodes; ++node) ++next[group_of(node)];
  std::exclusive_scan(next.begin(), next.end(), next.begin(), uint64_t{0});
  const uint64_t part_nodes = std::max<uint64_t>(1, CeilDiv(nodes, uint64_t{assignment.parts}));
  for (uint64_t node = 0; node < nodes; ++node) {
    const uint64_t place = next[group_of(node)]++;
    assignment.part_of[node] = static_cast<uint32_t>(place / part_nodes);
  }
  return Status::Ok();
}

// The parts that nodes have in the partitioning that is to be replaced, which become options.kept.
Result<MemoryBudget::Reservation> ReadKept(Store& store, MemoryBudget& budget, const PartitioningSpec& spec,
                                           PartitionOptions& options, Assignment& kept) {
  if (spec.training_first) {
    return Status(Code::kUsage,
                  "training-first gives nodes other parts, and kept leaves them theirs: one of the two");
  }
  const std::shared_ptr<const Manifest> manifest = store.manifest();
  const PartitioningRecord* const record = manifest->FindPartitioning(spec.name);
  if (record == nullptr) return ReadAssignment(store, budget, spec.name).status();
  if (options.parts != 0 && options.parts != record->part_count) {
    return MakeStatus(Code::kUsage, "{}: {} parts: partitioning \"{}\" has {}, which are kept", store.path(),
                      options.parts, spec.name, record->part_count);
  }
  if (record->topology != spec.topology) {
    return MakeStatus(Code::kUsage, "{}: partitioning \"{}\" is of topology \"{}\", not of \"{}\"",
                      store.path(), spec.name, record->topology, spec.topology);
  }
  QUARRY_TRY(MemoryBudget::Reservation reservation,
             budget.Reserve(record->node_count * sizeof(uint32_t), "the parts that nodes keep"));
  QUARRY_TRY(kept, ReadAssignment(store, budget, spec.name));
  options.parts = kept.parts;
  options.kept = kept.part_of;
  return reservation;
}

// The topology and what is read of it go before the build, which opens it anew.
Result<Assignment> AssignNodes(Store& store, MemoryBudget& budget, const TopologyRecord& record,
                               PartitionOptions options, const std::string& scratch,
                               const ProgressFunction& progress) {
  const ScopedSpan span("partition");
  QUARRY_TRY(const auto reservation, budget.Reserve(Topology::ResidentBytes(record), "reading a topology"));
  QUARRY_TRY(const std::unique_ptr<Topology> topology,
             Topology::Open(store.backend(), store.path(), record, store.manifest()->database_id));
  QUARRY_TRY(const auto edges, TopologyEdges::Make(store.backend(), *topology, budget));
  MemoryBudget::Reservation train_reservation;
  std::vector<NodeId> train_nodes;
  if (options.method == PartitionMethod::kBgl) {
    const std::shared_ptr<const Manifest> manifest = store.manifest();
    QUARRY_TRY(train_reservation, budget.Reserve(NodePropertiesBytes(*manifest), "the training nodes"));
    QUARRY_TRY(const std::shared_ptr<const Snapshot> snapshot, store.TakeSnapshot());
    QUARRY_TRY(const NodeProperties properties, LoadNodeProperties(store, record.node_count, snapshot));
    train_nodes = properties.TrainNodes();
    options.train_nodes = train_nodes;
  }
  return Partition(
      *edges, options,
      {.backend = store.backend(), .budget = budget, .scratch_directory = scratch, .progress = progress});
}

}  // namespace

Result<PartitionTuning> TuneParts(const Manifest& manifest, const TopologyRecord& topology,
                                  std::string_view table, const DeviceProfile& device,
                                  uint64_t memory_bytes) {
  const TableRecord* const rows = manifest.FindTable(table);
  // Rows lie a stride apart in parts.
  return TunePartitions(
      {.node_count = topology.node_count,
       .row_bytes = rows == nullptr ? 0 : rows->row_stride(),
       .edge_count = topology.edge_count,
       .edge_bytes = sizeof(uint64_t)},
      {.memory_bytes = memory_bytes, .request_bytes = RequestBytesAt(device, kBandwidthShare)});
}

Result<PartitioningRecord> MakePartitioning(Store& store, MemoryBudget& budget, PartitioningSpec spec,
                                            PartitionOptions options, const ProgressFunction& progress) {
  const double start = MonotonicSeconds();
  QUARRY_RETURN_IF_ERROR(CheckPartitioningName(spec.name));  // before hours of partitioning
  spec.method = NameOf(options.method);
  spec.seed = options.seed;
  Assignment kept;
  MemoryBudget::Reservation kept_reservation;
  if (options.method == PartitionMethod::kKept) {
    QUARRY_TRY(const std::optional<PartitioningRecord> renewed,
               RenewBuckets(store, budget, spec, options, progress, start));
    if (renewed) return *renewed;
    QUARRY_TRY(kept_reservation, ReadKept(store, budget, spec, options, kept));
  }
  QUARRY_RETURN_IF_ERROR(CheckPartCount(options.parts));
  QUARRY_TRY(const std::shared_ptr<const Snapshot> snapshot, store.TakeSnapshot());
  const TopologyRecord* const topology = snapshot->FindTopology(spec.topology);
  if (topology == nullptr) return store.OpenTopology(spec.topology).status();
  if (Times::Of(*topology, snapshot->node_count).any()) {
    return RefuseTimes(store.path(), *topology, snapshot->node_count);
  }
  if (!spec.table.empty() && snapshot->FindTable(spec.table) == nullptr)
    return store.OpenTable(spec.table).status();
  QUARRY_RETURN_IF_ERROR(store.PrepareToWrite());
  // Scratch files have no name for long; the build removes the folder, and makes it anew.
  const std::string scratch = fmt::format("{}/{}", store.path(), PartitioningBuildingFolder(spec.name));
  QUARRY_RETURN_IF_ERROR(
      EnsureSyncedDirectory(store.backend(), fmt::format("{}/{}", store.path(), kPartitionsFolder)));
  QUARRY_RETURN_IF_ERROR(EnsureDirectory(store.backend(), scratch));
  QUARRY_TRY(Assignment assignment, AssignNodes(store, budget, *topology, options, scratch, progress));
  kept = {};
  kept_reservation.Release();
  if (spec.training_first) {
    QUARRY_RETURN_IF_ERROR(PutTrainingFirst(store, budget, assignment));
    spec.method += kTrainingFirstMethod;
  }
  PartitioningBuilder builder(store, budget, spec, progress, start);
  return builder.Run(std::move(assignment));
}

Result<PartitioningRecord> BuildPartitioning(Store& store, MemoryBudget& budget, const PartitioningSpec& spec,
                                             Assignment assignment, const ProgressFunction& progress) {
  PartitioningBuilder builder(store, budget, spec, progress, MonotonicSeconds());
  return builder.Run(std::move(assignment));
}

}  // namespace quarry
