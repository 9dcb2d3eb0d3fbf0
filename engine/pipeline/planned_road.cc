#include "quarry/pipeline/planned_road.h"

#include <algorithm>
#include <cassert>
#include <numeric>

#include "one_pass.h"
#include "planned_stream.h"
#include "quarry/base/fields.h"
#include "quarry/base/log.h"
#include "quarry/base/units.h"
#include "quarry/storage/node_properties.h"
#include "quarry/storage/times.h"

namespace quarry {
namespace {

constexpr uint32_t kFramesMax = 4;
constexpr uint32_t kFramesMin = 2;
constexpr uint64_t kPlannedStagingBytes = 16 * kMiB;
constexpr uint64_t kHugePageBytes = 2 * kMiB;
constexpr uint64_t kUnpackedRequestBytes = kMiB;  // at least Extractor's largest

// Words of an edge: the neighbor, and its id where batches say that.
uint64_t WordsPerEdge(const RoadSpec& spec) { return spec.edge_ids ? 3 : 1; }

// Decoded: id and slot a node; id, place and admission a frame row; degree and neighbors.
uint64_t DecodedBytes(uint64_t nodes, uint64_t frame_rows, uint64_t edge_words) {
  return (3 * nodes + 4 * frame_rows + edge_words) * sizeof(uint32_t);
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
  Status OpenTable();
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
    return std::max<uint64_t>(1, layout_->directory().frame_rows_max()) * layout_->directory().row_stride;
  }
  uint64_t FrameRowsBytes() const;
  uint64_t PieceBytes(uint64_t host_slots) const;
  Status DivideDevice();
  uint64_t SegmentStagingBytes() const;
  uint64_t ExtractorBytes() const;

  Store& store_;
  MemoryBudget& budget_;
  const PlannedRoadOptions options_;
  std::unique_ptr<Layout> layout_;
  std::unique_ptr<FeatureTable> table_;  // for rows that are not packed
  std::shared_ptr<const Snapshot> snapshot_;
  std::unique_ptr<RowOverlay> overlay_;  // the table's
  std::unique_ptr<const JoinedColumns> joined_;
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
  QUARRY_RETURN_IF_ERROR(OpenTable());
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

// The table in the road's snapshot, and what is newer there than the rows that the layout gives.
Status PlannedRoadImpl::OpenTable() {
  const LayoutRecord& record = layout_->record();
  const LayoutDirectory& directory = layout_->directory();
  QUARRY_TRY(std::unique_ptr<FeatureTable> table, store_.OpenTable(*snapshot_, record.spec.feature_table));
  const FeatureGeometry& geometry = table->geometry();
  if (geometry.row_bytes != directory.row_bytes || directory.node_count > geometry.row_count) {
    return MakeStatus(Code::kCorruption, "{}: rows of {} bytes for {} nodes, the table has {} for {}",
                      layout_->file().path(), directory.row_bytes, directory.node_count, geometry.row_bytes,
                      geometry.row_count);
  }
  state_.element_type = geometry.element_type;
  const std::string& topology = record.spec.topology;
  QUARRY_TRY(joined_, JoinedColumns::Load(store_, snapshot_, topology, geometry.element_type));
  state_.joined = joined_.get();
  state_.dim = static_cast<uint32_t>(geometry.dim) + JoinedDim(*snapshot_, topology);
  if (joined_ != nullptr && options_.device.device != nullptr) {
    return MakeStatus(Code::kUnsupported,
                      "{}: batches of nodes at several times are made in memory: leave the device out",
                      store_.path());
  }
  if (RowStride(state_.element_type, state_.dim) > directory.row_stride) {
    return MakeStatus(
        Code::kUnsupported,
        "layout \"{}\" has no room for the columns that are joined to its rows now: build it again",
        record.name);
  }
  if (directory.packed) {
    QUARRY_TRY(overlay_, store_.OpenOverlay(record.spec.feature_table, snapshot_,
                                            TableVersion{record.table_generation, record.timestamp}));
  } else {
    QUARRY_TRY(overlay_, store_.OpenOverlay(record.spec.feature_table, snapshot_));
    table_ = std::move(table);
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
  if (table_ == nullptr) return 0;
  const uint64_t rows = layout_->directory().frame_rows_max();
  return table_->resident_bytes() + Extractor::StagingBytesMin(*table_) + kPlannedStagingBytes +
         Extractor::ScratchBytes(std::max(rows, layout_->directory().image_rows));
}

Status PlannedRoadImpl::DivideMemory() {
  state_.layout = layout_.get();
  QUARRY_RETURN_IF_ERROR(DivideDevice());
  const LayoutDirectory& directory = layout_->directory();
  const uint64_t nodes = directory.nodes_max();
  plan_.cache_bytes = RoundUp(state_.host_slots() * directory.row_stride, FrameAlignment());
  plan_.fixed_bytes = layout_->resident_bytes() + SlotTableBytes(directory.cache_slots, nodes) +
                      SegmentStagingBytes() + ExtractorBytes() + overlay_->resident_bytes() +
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
  state_.overlay = overlay_.get();
  state_.backend = &store_.backend();
  state_.io_depth = options_.io_depth;
  state_.gap_bytes_max = ProfileOf(*store_.manifest()).GapBytesMax();
  QUARRY_TRY(state_.arena, IoBuffer::Allocate(plan_.cache_bytes + plan_.frame_count * frame_rows_bytes));
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
  state_.decoder =
      std::make_unique<BlockDecoder>(static_cast<uint32_t>(directory.cache_slots), directory.node_count,
                                     directory.start_nodes, layout_->record().spec.edge_ids);
  state_.physical.resize(directory.cache_slots);
  if (const uint64_t bytes = SegmentStagingBytes(); bytes > 0) {
    QUARRY_TRY(state_.staging, IoBuffer::Allocate(bytes));
  }
  if (table_ != nullptr) {
    QUARRY_TRY(state_.extractor,
               Extractor::Make(store_.backend(), *table_,
                               {.overlay = overlay_.get(),
                                .joined = joined_.get(),
                                .staging_bytes = Extractor::StagingBytesMin(*table_) + kPlannedStagingBytes,
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
  const TableRecord& table = *manifest.FindTable(spec.road.feature_table);
  const TopologyRecord& topology = *manifest.FindTopology(spec.road.topology);
  const uint64_t stride = RowStride(table.element_type, BatchDim(manifest, spec.road.topology, table));
  const uint64_t times = Times::Of(topology, manifest.node_count).count;
  const uint64_t cache_slots = std::min(spec.road.cache_bytes / stride, table.row_count);
  const uint64_t nodes = std::min(batch_nodes_max, table.row_count);
  const uint64_t edges = BatchEdgesMax(spec.road, nodes, topology.edge_count * times);
  const uint64_t rows_bytes = RoundUp(nodes * stride, 2 * kHugePageBytes);
  const uint64_t edge_words = WordsPerEdge(spec.road) * edges;
  const uint64_t block_bytes = RoundUp((nodes + edge_words) * sizeof(uint32_t), kPageBytes);
  const uint64_t frame_bytes = rows_bytes + block_bytes + DecodedBytes(nodes, nodes, edge_words);
  const uint64_t batches = spec.BatchCount(train_nodes);
  const uint64_t checksum_bytes = CeilDiv(rows_bytes + block_bytes, kPageBytes) * sizeof(uint32_t);
  // Rows that may stay in the table are read from there, past its checksums.
  const uint64_t cell_bytes = RoundUp(RowBytes(table.element_type, table.dim), kPageBytes);
  const uint64_t table_bytes =
      spec.packing == Packing::kAlways
          ? 0
          : table.row_count * cell_bytes / kPageBytes * sizeof(uint32_t) +
                std::max<uint64_t>(cell_bytes + 2 * kPageBytes, kUnpackedRequestBytes) +
                kPlannedStagingBytes + Extractor::ScratchBytes(std::max(nodes, cache_slots));
  return table_bytes + RoundUp(cache_slots * stride, 2 * kHugePageBytes) +
         SlotTableBytes(cache_slots, nodes) + (spec.disk_bytes > 0 ? kPlannedStagingBytes : 0) +
         batches * (sizeof(BatchEntry) + checksum_bytes) + kFramesMin * frame_bytes;
}

Result<std::unique_ptr<PlannedRoad>> PlannedRoad::Open(Store& store, MemoryBudget& budget,
                                                       const PlannedRoadOptions& options) {
  auto road = std::make_unique<PlannedRoadImpl>(store, budget, options);
  QUARRY_RETURN_IF_ERROR(road->OpenAll());
  return std::unique_ptr<PlannedRoad>(std::move(road));
}

}  // namespace quarry
