#include "quarry/pipeline/planned_road.h"

#include <algorithm>
#include <cassert>
#include <numeric>

#include "one_pass.h"
#include "planned_stream.h"
#include "quarry/base/fields.h"
#include "quarry/base/log.h"
#include "quarry/base/units.h"
#include "quarry/format/fanouts.h"
#include "quarry/storage/node_properties.h"
#include "quarry/storage/times.h"

namespace quarry {
namespace {

constexpr uint32_t kFramesMax = 4;
constexpr uint32_t kFramesMin = 2;
constexpr uint64_t kPlannedStagingBytes = 16 * kMiB;
constexpr uint64_t kHugePageBytes = 2 * kMiB;
constexpr uint64_t kUnpackedRequestBytes = kMiB;  // at least Extractor's largest

// Words of an edge: the neighbor, and its id and its relation where batches say that.
uint64_t WordsPerEdge(const RoadSpec& spec) {
  return 1 + (spec.edge_ids ? 2 : 0) + (spec.relation_fanouts.empty() ? 0 : 1);
}

// Decoded: id and slot a node; id, places and admission a frame row; degree and neighbors.
uint64_t DecodedBytes(uint64_t nodes, uint64_t frame_rows, uint64_t edge_words) {
  return (3 * nodes + 5 * frame_rows + edge_words) * sizeof(uint32_t);
}

// Beside the layout itself: by cache slot, and by node of a batch.
uint64_t SlotTableBytes(uint64_t cache_slots, uint64_t nodes) {
  return 2 * (cache_slots + nodes) * sizeof(uint32_t);
}

class PlannedRoadImpl final : public PlannedRoad {
 public:
  PlannedRoadImpl(Store& store, MemoryBudget& budget, const PlannedRoadOptions& options)
      : store_(store), budget_(budget), options_(options) {}

  Status OpenAll();

  Result<std::unique_ptr<BatchStream>> StartPass(PassOptions pass) override;
  bool Serves(Split split) const override {
    return live_ != nullptr || HashSeeds(split == Split::kTrain ? TrainNodes() : SplitNodes(split)) ==
                                   layout_->directory().seed_hash;
  }
  std::span<const int64_t> labels() const override { return live_ ? live_->labels() : properties_.labels; }
  std::vector<NodeId> SplitNodes(Split split) const override {
    return live_ ? live_->SplitNodes(split) : properties_.SplitNodes(split);
  }
  uint32_t feature_dim() const override { return state_.dim; }
  const PlannedRoadPlan& plan() const override { return plan_; }
  const Layout& layout() const override { return *layout_; }
  const LiveRoad* live() const override { return live_.get(); }

 private:
  Status CheckEdges() const;
  Status CheckLive() const;
  void KeepShare(std::vector<NodeId>& seeds) const;
  // Not over files in an object store, which scattered rows are not read from.
  bool HasLive() const { return options_.live && store_.backend().remote_files() == nullptr; }
  Status OpenTables();
  Status CheckTables() const;
  Status DivideMemory();
  Status OpenLive();
  Status Allocate();
  // Frames begin at multiples of this many bytes: whole pages and whole rows; whole huge pages where that is
  // not much more, so that no request lies across two.
  uint64_t FrameAlignment() const {
    const uint64_t stride = layout_->directory().row_stride;
    const uint64_t huge = std::lcm(stride, kHugePageBytes);
    return huge <= 2 * kHugePageBytes && FrameRowsMaxBytes() >= huge ? huge : std::lcm(stride, kPageBytes);
  }
  uint64_t FrameRowsMaxBytes() const {
    return std::max(layout_->directory().row_stride, layout_->directory().frame_bytes_max());
  }
  uint64_t CachePlaces() const {  // of the host's part
    const LayoutDirectory& directory = layout_->directory();
    return state_.device_slots > 0 ? state_.host_slots() : directory.places().cache_places();
  }
  uint64_t FrameRowsBytes() const;
  uint64_t PieceBytes(uint64_t host_slots) const;
  Status DivideDevice();
  uint64_t SegmentStagingBytes() const;
  // Behind the last row, where rows differ in length.
  uint64_t SlackBytes() const {
    uint64_t bytes = 0;
    for (const RowForm& table : layout_->directory().tables) {
      bytes = std::max(bytes, table.places * layout_->directory().row_stride);
    }
    return bytes;
  }
  uint64_t ExtractorBytes() const;

  Store& store_;
  MemoryBudget& budget_;
  const PlannedRoadOptions options_;
  std::unique_ptr<Layout> layout_;
  RowSources rows_;  // with open tables where rows are not packed
  uint64_t overlay_bytes_ = 0;
  std::shared_ptr<const Snapshot> snapshot_;
  std::unique_ptr<LiveRoad> live_;
  NodeProperties properties_;
  MemoryBudget::Reservation reservation_;
  PlannedRoadPlan plan_;
  PlannedState state_;
  OnePass pass_;
};

template <typename T>
std::string TextOf(const T& value) {
  if constexpr (NamedEnum<T>) {
    return std::string(NameOf(value));
  } else {
    return fmt::format("{}", value);
  }
}
std::string TextOf(const std::vector<uint32_t>& values) { return fmt::format("{}", fmt::join(values, ",")); }

// Live passes of the same training must see the same graph and the same features.
Status PlannedRoadImpl::CheckLive() const {
  QUARRY_RETURN_IF_ERROR(CheckPlannable(options_.live->spec));
  const LayoutRecord& record = layout_->record();
  RoadSpec same = options_.live->spec.ForOtherPasses();
  same.batch_size = record.spec.batch_size;
  same.seed = record.spec.seed;
  if (same.edge_ids && !record.spec.edge_ids) {
    return MakeStatus(
        Code::kUnsupported,
        "layout \"{}\" keeps no edge ids, which are asked for: build it with --edge-ids, or take "
        "them from a live road",
        record.name);
  }
  same.edge_ids = record.spec.edge_ids;  // nobody has to ask for them
  std::string difference;                // the first
  ForEachField(same, record.spec.ForOtherPasses(),
               [&](std::string_view name, const auto& asked, const auto& planned) {
                 if (!difference.empty() || asked == planned) return;
                 std::string words(name);
                 std::ranges::replace(words, '_', ' ');
                 difference = fmt::format("with {} {}, not {}", words, TextOf(planned), TextOf(asked));
               });
  if (difference.empty()) return Status::Ok();
  return MakeStatus(Code::kUsage,
                    "layout \"{}\" was planned {}; train with the same, or build another layout", record.name,
                    difference);
}

// Edge ids are places among all edges, so one that comes or goes moves those behind it.
Status PlannedRoadImpl::CheckEdges() const {
  const LayoutRecord& record = layout_->record();
  if (!record.spec.edge_ids) return Status::Ok();
  const TopologyRecord* const topology = snapshot_->FindTopology(record.spec.topology);
  if (topology != nullptr && HasEdgesOf(*topology, record)) return Status::Ok();
  return MakeStatus(Code::kInvalidArgument,
                    "layout \"{}\" has edge ids of when it was built, and edges came or went since: `quarry "
                    "layout rebuild`",
                    record.name);
}

Status PlannedRoadImpl::OpenAll() {
  snapshot_ = options_.snapshot;
  if (snapshot_ == nullptr) {
    QUARRY_TRY(snapshot_, store_.TakeSnapshot());
  }
  QUARRY_TRY(layout_, options_.record ? Layout::Open(store_, *options_.record)
                                      : Layout::Open(store_, options_.layout));
  const LayoutDirectory& directory = layout_->directory();
  QUARRY_RETURN_IF_ERROR(CheckEdges());
  QUARRY_RETURN_IF_ERROR(OpenTables());
  if (options_.live) QUARRY_RETURN_IF_ERROR(CheckLive());
  QUARRY_RETURN_IF_ERROR(DivideMemory());
  if (HasLive()) {
    QUARRY_RETURN_IF_ERROR(OpenLive());
  } else {
    QUARRY_TRY(properties_, LoadNodeProperties(store_, directory.node_count, snapshot_));
  }
  QUARRY_RETURN_IF_ERROR(Allocate());
  LogLine(options_.tells_plan ? LogLevel::kInfo : LogLevel::kDebug, plan_.ToString());
  state_.labels = labels();
  return Status::Ok();
}

// The tables in the road's snapshot, and what is newer there than the rows that the layout gives.
Status PlannedRoadImpl::OpenTables() {
  const LayoutRecord& record = layout_->record();
  const LayoutDirectory& directory = layout_->directory();
  QUARRY_TRY(rows_, RowSources::Open(store_, snapshot_, record.spec));
  QUARRY_RETURN_IF_ERROR(CheckTables());
  if (rows_.types().empty()) state_.element_type = rows_.widest().element_type;
  state_.dim = rows_.dim();
  state_.rows = &rows_;
  if (options_.device.device != nullptr && (rows_.joined() != nullptr || !rows_.types().empty())) {
    return MakeStatus(Code::kUnsupported, "{}: batches of nodes {} are made in memory: leave the device out",
                      store_.path(), rows_.types().empty() ? "at several times" : "of several types");
  }
  std::vector<TableVersion> bases;
  for (size_t i = 0; directory.packed && i < rows_.sources().size(); ++i) {
    const uint64_t generation =
        directory.tables.empty() ? record.table_generation : directory.tables[i].generation;
    bases.push_back({generation, record.timestamp});
  }
  QUARRY_TRY(overlay_bytes_, rows_.OpenOverlays(store_, snapshot_, bases));
  if (directory.packed) rows_.CloseTables();
  return Status::Ok();
}

// Rows are as long as they were when the layout was built.
Status PlannedRoadImpl::CheckTables() const {
  const LayoutDirectory& directory = layout_->directory();
  const std::span<const RowSource> sources = rows_.sources();
  const bool one_table = directory.tables.empty();
  if (sources.size() != (one_table ? 1 : directory.tables.size())) {
    return MakeStatus(Code::kUnsupported,
                      "layout \"{}\" has rows of {} types of nodes, and {} have some now: build it again",
                      layout_->record().name, directory.tables.size(), sources.size());
  }
  for (size_t i = 0; i < sources.size(); ++i) {
    const FeatureGeometry& geometry = sources[i].table->geometry();
    const uint64_t row_bytes = one_table ? directory.row_bytes : directory.tables[i].row_bytes;
    if (geometry.row_bytes != row_bytes || (one_table && directory.node_count > geometry.row_count)) {
      return MakeStatus(Code::kCorruption, "{}: rows of {} bytes for {} nodes, the table has {} for {}",
                        layout_->file().path(), row_bytes, directory.node_count, geometry.row_bytes,
                        geometry.row_count);
    }
  }
  if (one_table && RowStride(rows_.widest().element_type, rows_.widest().dim) > directory.row_stride) {
    return MakeStatus(
        Code::kUnsupported,
        "layout \"{}\" has no room for the columns that are joined to its rows now: build it again",
        layout_->record().name);
  }
  return Status::Ok();
}

uint64_t PlannedRoadImpl::FrameRowsBytes() const {
  if (state_.device_options.device != nullptr)
    return RoundUp(state_.device_options.piece_bytes, FrameAlignment());
  return RoundUp(FrameRowsMaxBytes(), FrameAlignment());
}

// A batch for a device has those rows, too, that the host's part of the cache may have.
uint64_t PlannedRoadImpl::PieceBytes(uint64_t host_slots) const {
  const LayoutDirectory& directory = layout_->directory();
  const uint64_t nodes = directory.nodes_max(), read_rows = std::max<uint64_t>(1, directory.frame_rows_max());
  return PieceForm::BytesMax(read_rows + std::min(nodes, host_slots), directory.row_stride, nodes,
                             directory.edges_max(), read_rows, layout_->record().spec.edge_ids);
}

// As many slots of the cache as the device has room for beside its frames. Where that is not all, both parts begin a page
// of what the cache is loaded from. Fewer slots there make frames larger, so they are counted down until all of it fits.
Status PlannedRoadImpl::DivideDevice() {
  const DeviceTarget& target = options_.device;
  if (target.device == nullptr) return Status::Ok();
  const LayoutDirectory& directory = layout_->directory();
  const uint64_t pages = std::lcm(directory.row_stride, kPageBytes) / directory.row_stride;
  DeviceFramesOptions& device = state_.device_options;
  device = {.device = target.device,
            .stride = directory.row_stride,
            .element_type = state_.element_type,
            .dim = state_.dim,
            .cached_rows = directory.cache_slots};
  const auto bytes_with = [&](uint64_t slots) {
    device.cached_rows = slots;
    device.piece_bytes = PieceBytes(directory.cache_slots - slots);
    return DeviceFrames::DeviceBytes(device);
  };
  // Batches over other seeds go by a feed, which has a quarter.
  const uint64_t limit = HasLive() ? target.bytes - target.bytes / 4 : target.bytes;
  const uint64_t wanted = target.cache_bytes / directory.row_stride;
  uint64_t bytes =
      bytes_with(wanted >= directory.cache_slots ? directory.cache_slots : wanted / pages * pages);
  while (bytes > limit && device.cached_rows > 0) {
    const uint64_t fewer = std::max(pages, (bytes - limit) / directory.row_stride / pages * pages);
    const uint64_t slots = device.cached_rows - std::min(device.cached_rows, fewer);
    bytes = bytes_with(slots / pages * pages);
  }
  if (bytes > limit) {
    return MakeStatus(
        Code::kOutOfBudget,
        "layout \"{}\" takes {} of the device's memory for its batches, more than the {} given: give "
        "at least {}MiB",
        layout_->record().name, FormatBytes(bytes), FormatBytes(limit),
        CeilDiv(HasLive() ? bytes + bytes / 3 : bytes, kMiB));
  }
  state_.device_slots = plan_.device_slots = device.cached_rows;
  plan_.device_bytes = bytes;
  return Status::Ok();
}

uint64_t PlannedRoadImpl::SegmentStagingBytes() const {
  if (layout_->directory().segments.empty()) return 0;
  return std::max(kPlannedStagingBytes,
                  4 * RoundUp(layout_->directory().row_stride + kPageBytes, kPageBytes));
}

uint64_t PlannedRoadImpl::ExtractorBytes() const {
  if (layout_->directory().packed) return 0;
  const uint64_t rows = std::max(layout_->directory().frame_rows_max(), layout_->directory().image_rows);
  uint64_t bytes =
      Extractor::StagingBytesMin(rows_) + kPlannedStagingBytes + Extractor::ScratchBytes(rows, rows_);
  for (const RowSource& source : rows_.sources()) bytes += source.table->resident_bytes();
  return bytes;
}

Status PlannedRoadImpl::DivideMemory() {
  state_.layout = layout_.get();
  QUARRY_RETURN_IF_ERROR(DivideDevice());
  const LayoutDirectory& directory = layout_->directory();
  const uint64_t nodes = directory.nodes_max();
  plan_.cache_bytes = RoundUp(CachePlaces() * directory.row_stride, FrameAlignment());
  plan_.fixed_bytes = layout_->resident_bytes() + SlotTableBytes(directory.cache_slots, nodes) +
                      SegmentStagingBytes() + ExtractorBytes() + overlay_bytes_ + SlackBytes() +
                      JoinedColumns::ResidentBytes(*store_.manifest(), layout_->record().spec.topology) +
                      (HasLive() ? 0 : NodePropertiesBytes(*store_.manifest()));
  plan_.frame_bytes = FrameRowsBytes() + RoundUp(directory.block_bytes_max(), kPageBytes) +
                      DecodedBytes(nodes, directory.frame_rows_max(),
                                   WordsPerEdge(layout_->record().spec) * directory.edges_max());
  const uint32_t least = options_.frame_count > 0 ? options_.frame_count : kFramesMin;
  const uint32_t most = options_.frame_count > 0 ? options_.frame_count : kFramesMax;
  // A live road for the other passes needs its share: frames beyond the least take at most half of what is
  // left.
  const uint64_t available = budget_.available_bytes();
  plan_.frame_count = least;
  while (plan_.frame_count < most &&
         plan_.total_bytes() + plan_.frame_bytes <= (HasLive() ? available / 2 : available)) {
    ++plan_.frame_count;
  }
  QUARRY_TRY(reservation_, budget_.Reserve(plan_.total_bytes(), "the planned road"));
  return Status::Ok();
}

// Frames beyond the least are there for speed: the live road has their room where it needs it.
Status PlannedRoadImpl::OpenLive() {
  LiveRoadOptions live = *options_.live;
  live.snapshot = snapshot_;
  Result<std::unique_ptr<LiveRoad>> opened = LiveRoad::Open(store_, budget_, live);
  if (opened.status().code() == Code::kOutOfBudget && options_.frame_count == 0 &&
      plan_.frame_count > kFramesMin) {
    plan_.frame_count = kFramesMin;
    reservation_.Release();
    QUARRY_TRY(reservation_, budget_.Reserve(plan_.total_bytes(), "the planned road"));
    opened = LiveRoad::Open(store_, budget_, live);
  }
  QUARRY_TRY(live_, std::move(opened));
  return Status::Ok();
}

Status PlannedRoadImpl::Allocate() {
  const LayoutDirectory& directory = layout_->directory();
  const uint64_t frame_rows_bytes = FrameRowsBytes();
  state_.row_places = directory.places();
  state_.backend = &store_.backend();
  state_.io_depth = options_.io_depth;
  state_.gap_bytes_max = ProfileOf(*store_.manifest()).GapBytesMax();
  const uint64_t rows_bytes = plan_.cache_bytes + plan_.frame_count * frame_rows_bytes;
  if (rows_bytes / directory.row_stride > UINT32_MAX) {
    return MakeStatus(Code::kUnsupported,
                      "layout \"{}\": rows of its types have {} bytes in common, and {} of them are more "
                      "than can be numbered: give less --cache",
                      layout_->record().name, directory.row_stride, FormatBytes(rows_bytes));
  }
  QUARRY_TRY(state_.arena, IoBuffer::Allocate(rows_bytes + SlackBytes()));
  if (gpu::Device* const device = options_.device.device; device != nullptr) {
    state_.piece_bytes = frame_rows_bytes;
    QUARRY_TRY(state_.pinned, gpu::PinMemory(*device, {state_.arena.data(), state_.arena.mapped_bytes()}));
    QUARRY_TRY(state_.device, DeviceFrames::Make(state_.device_options));
  }
  for (uint32_t i = 0; i < plan_.frame_count; ++i) {
    auto frame = std::make_unique<PlannedFrame>();
    const uint64_t offset = plan_.cache_bytes + i * frame_rows_bytes;
    frame->rows = state_.arena.data() + offset;
    frame->first_slot = static_cast<uint32_t>(offset / directory.row_stride);
    QUARRY_TRY(frame->block_bytes,
               IoBuffer::Allocate(std::max(kPageBytes, RoundUp(directory.block_bytes_max(), kPageBytes))));
    state_.frames.push_back(std::move(frame));
  }
  state_.decoder = std::make_unique<BlockDecoder>(
      static_cast<uint32_t>(directory.cache_slots), directory.node_count, directory.start_nodes,
      layout_->record().spec.edge_ids,
      static_cast<uint32_t>(
          RelationCount(layout_->record().spec.fanouts, layout_->record().spec.relation_fanouts)));
  state_.physical.resize(directory.cache_slots);
  if (const uint64_t bytes = SegmentStagingBytes(); bytes > 0) {
    QUARRY_TRY(state_.staging, IoBuffer::Allocate(bytes));
  }
  if (!directory.packed) {
    QUARRY_TRY(state_.extractor,
               Extractor::Make(store_.backend(), rows_,
                               {.staging_bytes = Extractor::StagingBytesMin(rows_) + kPlannedStagingBytes,
                                .device = ProfileOf(*store_.manifest())}));
  }
  return Status::Ok();
}

// Where the layout was not planned for the seeds, a trainer among several has those of its batches.
void PlannedRoadImpl::KeepShare(std::vector<NodeId>& seeds) const {
  const RankShare& share = layout_->record().share;
  if (share.ranks == 0 || !options_.live) return;
  std::vector<NodeId> own;
  for (size_t i = 0; i < seeds.size(); ++i) {
    if (i / options_.live->spec.batch_size % share.ranks == share.rank) own.push_back(seeds[i]);
  }
  seeds = std::move(own);
}

Result<std::unique_ptr<BatchStream>> PlannedRoadImpl::StartPass(PassOptions pass) {
  QUARRY_RETURN_IF_ERROR(pass_.Check());
  if (HashSeeds(pass.seeds) != layout_->directory().seed_hash) {
    KeepShare(pass.seeds);
    if (live_) return live_->StartPass(std::move(pass));
    const RemoteFiles* const remote = store_.backend().remote_files();
    return MakeStatus(
        Code::kUnsupported, "layout \"{}\" was planned for other seeds than the {} of this pass{}",
        layout_->record().name, pass.seeds.size(),
        remote == nullptr ? std::string()
                          : fmt::format(", whose rows are scattered, and {} gives none such: bring the "
                                        "database here (quarry pull)",
                                        remote->address));
  }
  return pass_.Start([this](std::function<void(bool)> on_end) {
    return std::make_unique<PlannedStream>(state_, std::move(on_end));
  });
}

}  // namespace

std::string PlannedRoadPlan::ToString() const {
  std::string line =
      fmt::format("planned memory: {} = {} fixed + {} cache + {} frames of {}", FormatBytes(total_bytes()),
                  FormatBytes(fixed_bytes), FormatBytes(cache_bytes), frame_count, FormatBytes(frame_bytes));
  if (device_bytes == 0) return line;
  return line + fmt::format("; of the device {}, with {} rows of the cache", FormatBytes(device_bytes),
                            device_slots);
}

// Every row may be one that the frame brings, and an edge takes no more in the block than it does decoded.
uint64_t PlannedRoad::LeastBytes(const Manifest& manifest, const LayoutSpec& spec, uint64_t train_nodes,
                                 uint64_t batch_nodes_max) {
  const TopologyRecord& topology = *manifest.FindTopology(spec.road.topology);
  const bool typed = !spec.road.relation_fanouts.empty();
  uint64_t stride = 0, row_count = 0, cache_slots = 0, cells_bytes = 0, cell_bytes = 0;
  for (const SourceRecord& table : SourceRecordsOf(manifest, spec.road)) {
    const TableRecord& record = *table.record;
    const uint64_t dim = typed ? record.dim : BatchDim(manifest, spec.road.topology, record);
    const uint64_t of_table = RowStride(record.element_type, dim);
    const uint64_t cell = RoundUp(RowBytes(record.element_type, record.dim), kPageBytes);
    stride = std::max(stride, of_table);
    row_count += record.row_count;
    cache_slots += std::min(spec.road.cache_bytes / of_table, record.row_count);
    cells_bytes += record.row_count * cell / kPageBytes * sizeof(uint32_t);
    cell_bytes = std::max(cell_bytes, cell);
  }
  const uint64_t times = Times::Of(topology, manifest.node_count).count;
  const uint64_t nodes = std::min(batch_nodes_max, typed ? manifest.node_count : row_count);
  const uint64_t edges = BatchEdgesMax(spec.road, nodes, topology.edge_count * times);
  const uint64_t rows_bytes = RoundUp(nodes * stride, 2 * kHugePageBytes);
  const uint64_t edge_words = WordsPerEdge(spec.road) * edges;
  const uint64_t block_bytes = RoundUp((nodes + edge_words) * sizeof(uint32_t), kPageBytes);
  const uint64_t frame_bytes = rows_bytes + block_bytes + DecodedBytes(nodes, nodes, edge_words);
  const uint64_t batches = spec.BatchCount(train_nodes);
  const uint64_t checksum_bytes = CeilDiv(rows_bytes + block_bytes, kPageBytes) * sizeof(uint32_t);
  // Rows that may stay in the table are read from there, past its checksums.
  const uint64_t table_bytes =
      spec.packing == Packing::kAlways
          ? 0
          : cells_bytes + std::max<uint64_t>(cell_bytes + 2 * kPageBytes, kUnpackedRequestBytes) +
                kPlannedStagingBytes + Extractor::ScratchBytes(std::max(nodes, cache_slots)) +
                (typed ? std::max(nodes, cache_slots) * sizeof(uint64_t) : 0);
  const uint64_t cache_bytes = typed ? spec.road.cache_bytes : cache_slots * stride;
  return table_bytes + RoundUp(cache_bytes, 2 * kHugePageBytes) + SlotTableBytes(cache_slots, nodes) +
         (spec.disk_bytes > 0 ? kPlannedStagingBytes : 0) + batches * (sizeof(BatchEntry) + checksum_bytes) +
         kFramesMin * frame_bytes;
}

Result<std::unique_ptr<PlannedRoad>> PlannedRoad::Open(Store& store, MemoryBudget& budget,
                                                       const PlannedRoadOptions& options) {
  auto road = std::make_unique<PlannedRoadImpl>(store, budget, options);
  QUARRY_RETURN_IF_ERROR(road->OpenAll());
  return std::unique_ptr<PlannedRoad>(std::move(road));
}

}  // namespace quarry
