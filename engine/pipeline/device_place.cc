// Computation on a device, and the travels of its batches.
#include <algorithm>
#include <cassert>
#include <cstring>
#include <utility>
#include <vector>

#include "compute_place.h"
#include "quarry/base/units.h"
#include "quarry/gpu/handles.h"
#include "quarry/io/buffer.h"
#include "quarry/pipeline/device_task.h"

namespace quarry {
namespace {

// How a batch lies in its frame, the same in pinned memory and on the device, each array aligned to 16 bytes:
//
//   of each table: ids, timestamps │ payload │ rows replaced │ of each table: rows
//   ◄──────────────────────────── one copy there ────────────────────────────►
//                                            ◄───────────── one copy back ────►
struct FrameLayout {
  struct Block {
    uint64_t ids = 0, timestamps = 0, rows = 0;
  };
  std::vector<Block> blocks;  // by table
  uint64_t payload = 0;
  uint64_t replaced = 0;
  uint64_t bytes = 0;

  FrameLayout() = default;
  FrameLayout(std::span<const EmbeddingSpec> specs, std::span<const uint64_t> row_counts,
              uint64_t payload_bytes)
      : blocks(specs.size()) {
    for (size_t i = 0; i < specs.size(); ++i) {
      blocks[i].ids = Take(row_counts[i] * sizeof(RowId));
      blocks[i].timestamps = Take(row_counts[i] * sizeof(int64_t));
    }
    payload = Take(payload_bytes);
    replaced = Take(sizeof(uint64_t));
    for (size_t i = 0; i < specs.size(); ++i) {
      blocks[i].rows = Take(row_counts[i] * DeviceRowStride(specs[i]) * sizeof(float));
    }
  }

 private:
  uint64_t Take(uint64_t array_bytes) { return std::exchange(bytes, bytes + RoundUp(array_bytes, 16)); }
};

constexpr uint64_t kFrameAlignment = 4096;  // pages, of each flight's pinned memory

// Which stage's time lies between a pair of events.
constexpr EmbeddingStage kTimed[] = {EmbeddingStage::kTransfer, EmbeddingStage::kCompute,
                                     EmbeddingStage::kTransferBack};

// Rows that a validation cache has room for (embedding_pipeline.h says why so many).
DeviceValidationCache::Capacity CacheCapacity(uint64_t rows_max, const EmbeddingPipelineOptions& options) {
  return {.rows_max = rows_max, .batches = uint64_t{options.ordered ? 2U : 4U} * FlightCount(options)};
}

std::vector<EmbeddingSpec> SpecsOf(std::span<EmbeddingTable* const> tables) {
  std::vector<EmbeddingSpec> specs;
  for (const EmbeddingTable* table : tables) specs.push_back(table->spec());
  return specs;
}

uint64_t FrameBytes(std::span<const EmbeddingSpec> specs, const DeviceTaskSizes& sizes) {
  return RoundUp(FrameLayout(specs, sizes.rows, sizes.payload_bytes).bytes, kFrameAlignment);
}

class DevicePlace final : public ComputePlace {
 public:
  DevicePlace(std::span<EmbeddingTable* const> tables, DeviceEmbeddingTask& task, gpu::Device& device,
              const EmbeddingPipelineOptions& options)
      : task_(task),
        device_(device),
        options_(options),
        specs_(SpecsOf(tables)),
        sizes_(task.sizes()),
        frame_bytes_(FrameBytes(specs_, sizes_)) {}

  // What comes before the first batch: all that can fail for want of memory, of the host and of the device.
  Status Pin();
  Status Allocate();

  bool has_transfers() const override { return true; }
  Status Transfer(EmbeddingFlight& flight) override;
  Status Compute(EmbeddingFlight& flight) override;
  Status TransferBack(EmbeddingFlight& flight) override;
  void Drain() override;

  uint64_t cache_rows() const override {
    uint64_t rows = 0;
    for (const auto& cache : caches_) rows += cache->row_count();
    return rows;
  }
  uint64_t cache_bytes() const override {
    uint64_t bytes = 0;
    for (const auto& cache : caches_) bytes += cache->memory_bytes();
    return bytes;
  }

 private:
  // What a flight has of its own.
  struct Frame {
    std::byte* host = nullptr;
    std::byte* device = nullptr;
    FrameLayout layout;                // of its batch
    std::vector<DeviceRowBlock> rows;  // by table
    gpu::Event begun[std::size(kTimed)], ended[std::size(kTimed)];
  };

  Status CheckSizes(const EmbeddingItem& item, uint64_t payload_bytes) const;
  void Pack(const EmbeddingFlight& flight, std::span<const std::byte> payload, Frame& frame) const;
  Status RoundRows(const Frame& frame) const;
  // Enqueues `work` on the stream, between the events of kTimed[which].
  template <typename Work>
  Status Timed(Frame& frame, size_t which, const gpu::Stream& stream, const Work& work);

  DeviceEmbeddingTask& task_;
  gpu::Device& device_;
  const EmbeddingPipelineOptions options_;
  const std::vector<EmbeddingSpec> specs_;  // by table
  const DeviceTaskSizes sizes_;
  const uint64_t frame_bytes_;

  IoBuffer host_;  // frames of all flights; likewise the next two
  gpu::Pinned pinned_;
  gpu::Memory memory_;
  gpu::Memory scratch_;
  std::vector<std::unique_ptr<DeviceValidationCache>> caches_;  // by table; none without OAC
  std::vector<Frame> frames_;                                   // by flight
  gpu::Stream to_device_, compute_, to_host_;                   // go first: what they run uses what is above
};

Status DevicePlace::Pin() {
  QUARRY_TRY(host_, IoBuffer::Allocate(FlightCount(options_) * frame_bytes_));
  QUARRY_TRY(pinned_, gpu::PinMemory(device_, {host_.data(), FlightCount(options_) * frame_bytes_}));
  return Status::Ok();
}

Status DevicePlace::Allocate() {
  const unsigned flights = FlightCount(options_);
  QUARRY_TRY(memory_, gpu::AllocateMemory(device_, flights * frame_bytes_));
  QUARRY_TRY(scratch_, gpu::AllocateMemory(device_, std::max<uint64_t>(sizes_.scratch_bytes, 1)));
  for (gpu::Stream* stream : {&to_device_, &compute_, &to_host_}) {
    QUARRY_TRY(*stream, gpu::MakeStream(device_));
  }
  for (size_t i = 0; options_.mode == AsyncMode::kOac && i < specs_.size(); ++i) {
    QUARRY_TRY(auto cache, DeviceValidationCache::Make(
                               device_, specs_[i], CacheCapacity(sizes_.rows[i], options_), compute_.get()));
    caches_.push_back(std::move(cache));
  }
  frames_.resize(flights);
  for (size_t i = 0; i < frames_.size(); ++i) {
    Frame& frame = frames_[i];
    frame.host = host_.data() + i * frame_bytes_;
    frame.device = memory_.get().data() + i * frame_bytes_;
    for (gpu::Event& event : frame.begun) {
      QUARRY_TRY(event, gpu::MakeEvent(device_, /*timed=*/true));
    }
    for (gpu::Event& event : frame.ended) {
      QUARRY_TRY(event, gpu::MakeEvent(device_, /*timed=*/true));
    }
  }
  return device_.Synchronize(compute_.get());  // the caches are empty
}

template <typename Work>
Status DevicePlace::Timed(Frame& frame, size_t which, const gpu::Stream& stream, const Work& work) {
  QUARRY_RETURN_IF_ERROR(device_.Record(frame.begun[which].get(), stream.get()));
  QUARRY_RETURN_IF_ERROR(work());
  return device_.Record(frame.ended[which].get(), stream.get());
}

Status DevicePlace::CheckSizes(const EmbeddingItem& item, uint64_t payload_bytes) const {
  for (size_t i = 0; i < specs_.size(); ++i) {
    if (item.blocks[i].ids.size() <= sizes_.rows[i]) continue;
    return MakeStatus(Code::kInvalidArgument,
                      "batch {} has {} rows of table {}: its task has said {} at most", item.batch,
                      item.blocks[i].ids.size(), i, sizes_.rows[i]);
  }
  if (payload_bytes <= sizes_.payload_bytes) return Status::Ok();
  return MakeStatus(Code::kInvalidArgument,
                    "batch {} has a payload of {} bytes: its task has said {} at most", item.batch,
                    payload_bytes, sizes_.payload_bytes);
}

// The frame's batch before this one is back and in the tables, so nothing enqueued uses the frame.
Status DevicePlace::Transfer(EmbeddingFlight& flight) {
  const std::span<const std::byte> payload = task_.Payload(flight.item);
  QUARRY_RETURN_IF_ERROR(CheckSizes(flight.item, payload.size()));
  Frame& frame = frames_[flight.index];
  Pack(flight, payload, frame);
  return Timed(frame, 0, to_device_, [&] {
    return device_.CopyIn(frame.device, frame.host, frame.layout.bytes, to_device_.get());
  });
}

void DevicePlace::Pack(const EmbeddingFlight& flight, std::span<const std::byte> payload,
                       Frame& frame) const {
  const std::vector<RowBlock>& blocks = flight.item.blocks;
  std::vector<uint64_t> counts;
  for (const RowBlock& block : blocks) counts.push_back(block.ids.size());
  frame.layout = FrameLayout(specs_, counts, payload.size());
  frame.rows.clear();
  for (size_t i = 0; i < blocks.size(); ++i) {
    const RowBlock& block = blocks[i];
    const FrameLayout::Block& at = frame.layout.blocks[i];
    std::copy(block.ids.begin(), block.ids.end(), reinterpret_cast<RowId*>(frame.host + at.ids));
    std::copy(block.timestamps.begin(), block.timestamps.end(),
              reinterpret_cast<int64_t*>(frame.host + at.timestamps));
    const size_t dim = specs_[i].dim, state_dim = specs_[i].state_dim(), stride = DeviceRowStride(specs_[i]);
    auto* row = reinterpret_cast<float*>(frame.host + at.rows);
    for (size_t r = 0; r < counts[i]; ++r, row += stride) {
      std::copy_n(block.values.data() + r * dim, dim, row);
      std::copy_n(block.state.data() + r * state_dim, state_dim, row + dim);
    }
    frame.rows.push_back({.ids = reinterpret_cast<const RowId*>(frame.device + at.ids),
                          .timestamps = reinterpret_cast<int64_t*>(frame.device + at.timestamps),
                          .rows = reinterpret_cast<float*>(frame.device + at.rows),
                          .count = counts[i]});
  }
  std::copy(payload.begin(), payload.end(), frame.host + frame.layout.payload);
  std::memset(frame.host + frame.layout.replaced, 0, sizeof(uint64_t));
}

Status DevicePlace::Compute(EmbeddingFlight& flight) {
  Frame& frame = frames_[flight.index];
  QUARRY_RETURN_IF_ERROR(device_.Wait(compute_.get(), frame.ended[0].get()));
  QUARRY_RETURN_IF_ERROR(Timed(frame, 1, compute_, [&]() -> Status {
    auto* const replaced = reinterpret_cast<uint64_t*>(frame.device + frame.layout.replaced);
    for (size_t i = 0; i < caches_.size(); ++i) {
      QUARRY_RETURN_IF_ERROR(caches_[i]->Validate(flight.ticket, frame.rows[i], replaced));
    }
    const DeviceEmbeddingBatch batch = {.blocks = frame.rows,
                                        .payload = frame.device + frame.layout.payload,
                                        .scratch = scratch_.get().data()};
    QUARRY_RETURN_IF_ERROR(task_.Compute(flight.item, batch, device_, compute_.get()));
    QUARRY_RETURN_IF_ERROR(RoundRows(frame));
    for (size_t i = 0; i < caches_.size(); ++i) {
      QUARRY_RETURN_IF_ERROR(caches_[i]->Insert(frame.rows[i], flight.timestamp));
    }
    return Status::Ok();
  }));
  QUARRY_RETURN_IF_ERROR(device_.Wait(to_host_.get(), frame.ended[1].get()));
  const uint64_t from = frame.layout.replaced;
  return Timed(frame, 2, to_host_, [&] {
    return device_.CopyOut(frame.host + from, frame.device + from, frame.layout.bytes - from, to_host_.get());
  });
}

// RoundToStored, on the device.
Status DevicePlace::RoundRows(const Frame& frame) const {
  for (size_t i = 0; i < specs_.size(); ++i) {
    if (specs_[i].element_type != ElementType::kBfloat16) continue;
    const gpu::RoundRowsToBfloat16 round = {.rows = reinterpret_cast<std::byte*>(frame.rows[i].rows),
                                            .row_count = frame.rows[i].count,
                                            .stride_bytes = DeviceRowStride(specs_[i]) * sizeof(float),
                                            .dim = specs_[i].dim};
    QUARRY_RETURN_IF_ERROR(gpu::Run(device_, round, compute_.get()));
  }
  return Status::Ok();
}

// The rows have to be here before they can be written: this wait is the protocol's. The compute stream does not take part.
Status DevicePlace::TransferBack(EmbeddingFlight& flight) {
  Frame& frame = frames_[flight.index];
  QUARRY_RETURN_IF_ERROR(device_.Synchronize(frame.ended[2].get()));
  for (size_t which = 0; which < std::size(kTimed); ++which) {
    QUARRY_TRY(flight.device_seconds[static_cast<size_t>(kTimed[which])],
               device_.SecondsBetween(frame.begun[which].get(), frame.ended[which].get()));
  }
  std::memcpy(&flight.rows_replaced, frame.host + frame.layout.replaced, sizeof(uint64_t));
  for (size_t i = 0; i < specs_.size(); ++i) {
    RowBlock& block = flight.item.blocks[i];
    const size_t dim = specs_[i].dim, state_dim = specs_[i].state_dim(), stride = DeviceRowStride(specs_[i]);
    const auto* row = reinterpret_cast<const float*>(frame.host + frame.layout.blocks[i].rows);
    for (size_t r = 0; r < block.ids.size(); ++r, row += stride) {
      std::copy_n(row, dim, block.values.data() + r * dim);
      std::copy_n(row + dim, state_dim, block.state.data() + r * state_dim);
    }
    std::fill(block.timestamps.begin(), block.timestamps.end(), flight.timestamp);
  }
  return Status::Ok();
}

// A device that refuses to be waited for is asked once more: one that is lost has nothing under way.
void DevicePlace::Drain() {
  for (const gpu::Stream* stream : {&to_device_, &compute_, &to_host_}) {
    if (!*stream) continue;
    if (!device_.Synchronize(stream->get()).ok()) static_cast<void>(device_.Synchronize(stream->get()));
  }
}

}  // namespace

DevicePipelineBytes DevicePipelineMemory(std::span<EmbeddingTable* const> tables,
                                         const DeviceTaskSizes& sizes,
                                         const EmbeddingPipelineOptions& options) {
  const std::vector<EmbeddingSpec> specs = SpecsOf(tables);
  const uint64_t frames = FlightCount(options) * FrameBytes(specs, sizes);
  DevicePipelineBytes bytes = {.device = frames + std::max<uint64_t>(sizes.scratch_bytes, 1),
                               .pinned = IoBuffer::MappedBytes(frames)};
  for (size_t i = 0; options.mode == AsyncMode::kOac && i < specs.size(); ++i) {
    bytes.device += DeviceValidationCache::MemoryBytes(specs[i], CacheCapacity(sizes.rows[i], options));
  }
  return bytes;
}

Result<std::unique_ptr<EmbeddingPipeline>> MakeDeviceEmbeddingPipeline(
    std::span<EmbeddingTable* const> tables, DeviceEmbeddingTask& task, gpu::Device& device,
    uint64_t memory_bytes, const EmbeddingPipelineOptions& options) {
  assert(task.sizes().rows.size() == tables.size());
  EmbeddingPipelineOptions least = options;
  least.batches_in_flight = 1;
  const DeviceTaskSizes sizes = task.sizes();
  const uint64_t bytes = DevicePipelineMemory(tables, sizes, options).device;
  const std::string need = fmt::format(
      "training takes {} of the device's memory with {} batches in flight; the least that would do is {}, "
      "with one",
      FormatBytes(bytes), FlightCount(options),
      FormatBytes(DevicePipelineMemory(tables, sizes, least).device));
  if (memory_bytes != 0 && bytes > memory_bytes) {
    return MakeStatus(Code::kOutOfBudget, "{}: there are {}", need, FormatBytes(memory_bytes));
  }
  auto place = std::make_unique<DevicePlace>(tables, task, device, options);
  QUARRY_RETURN_IF_ERROR(place->Pin());
  if (const Status status = place->Allocate(); !status.ok()) {
    place->Drain();
    if (status.code() != Code::kOutOfBudget) return status;
    return MakeStatus(Code::kOutOfBudget, "{}: {}", need, status.message());
  }
  return MakeEmbeddingPipeline(
      tables, [&task](EmbeddingItem& item) { return task.Prepare(item); }, std::move(place), options);
}

}  // namespace quarry
