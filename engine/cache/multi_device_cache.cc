#include "quarry/cache/multi_device_cache.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cassert>
#include <cstring>
#include <numeric>
#include <utility>

#include "fifo_rows.h"
#include "quarry/base/bounded_queue.h"
#include "quarry/base/mutex.h"
#include "quarry/base/thread.h"
#include "quarry/base/units.h"
#include "quarry/gpu/handles.h"
#include "quarry/gpu/rows.h"
#include "quarry/io/buffer.h"

namespace quarry {
namespace {

constexpr size_t kHalves = 2;
// Numbers that a batch sends to the device at most: a slot and a place of each hit, a place of each miss, a slot and a staged
// row of each that enters.
constexpr uint64_t kNumbersOfNode = 3;

// Buffer g's share of `rows`.
uint64_t ShareOf(uint64_t rows, uint32_t buffers, uint32_t g) {
  return rows / buffers + (g < rows % buffers ? 1 : 0);
}

uint64_t StagedRows(const MultiDeviceCacheOptions& options) {
  return std::clamp<uint64_t>(options.staging_bytes / kHalves / options.stride_bytes, 1,
                              std::max<uint64_t>(options.batch_nodes_max, 1));
}
uint64_t StagingBytes(const MultiDeviceCacheOptions& options) {
  return StagedRows(options) * options.stride_bytes;
}
uint64_t NumberBytes(const MultiDeviceCacheOptions& options) {
  return std::max<uint64_t>(options.batch_nodes_max, 1) * kNumbersOfNode * sizeof(uint32_t);
}

}  // namespace

// A batch under way. Its nodes lie buffer by buffer.
struct MultiDeviceCache::Flight {
  gpu::Event may_write;
  std::vector<gpu::Event> written;  // by buffer
  std::vector<NodeId> nodes;
  std::vector<uint32_t> places;  // of the nodes in the batch
  std::vector<size_t> begins;    // [buffers + 1]
  std::byte* out = nullptr;
  gpu::StreamHandle stream;
  bool begun = false;

  Mutex mutex;
  CondVar changed;
  uint32_t remaining QUARRY_GUARDED_BY(mutex) = 0;  // buffers
  Status status QUARRY_GUARDED_BY(mutex);           // the first error

  void End(const Status& of_buffer) {
    MutexLock lock(mutex);
    if (status.ok()) status = of_buffer;
    --remaining;
    changed.NotifyAll();
  }
};

class MultiDeviceCache::Buffer {
 public:
  Buffer(MultiDeviceCache& cache, uint32_t g)
      : options_(cache.options_),
        fetch_(cache.fetch_),
        g_(g),
        queue_(options_.batches_in_flight),
        on_device_(RowsOf(options_, options_.device_rows, g)),
        on_host_(RowsOf(options_, options_.host_rows, g)),
        nodes_(options_.batch_nodes_max) {
    for (auto* const numbers : {&found_, &entered_, &positions_, &found_on_host_, &entered_on_host_}) {
      numbers->resize(options_.batch_nodes_max);
    }
    misses_.reserve(options_.batch_nodes_max);
  }
  static uint64_t Bytes(const MultiDeviceCacheOptions& options, uint32_t g) {
    const uint64_t host_rows = ShareOf(options.host_rows, options.buffers, g);
    return FifoRows::Bytes(RowsOf(options, options.device_rows, g)) +
           FifoRows::Bytes(RowsOf(options, options.host_rows, g)) +
           options.batch_nodes_max * (5 * sizeof(uint32_t) + sizeof(NodeId) + sizeof(Miss)) +
           (host_rows == 0 ? 0 : IoBuffer::MappedBytes(host_rows * options.stride_bytes)) +
           IoBuffer::MappedBytes(kHalves * StagingBytes(options)) +
           IoBuffer::MappedBytes(NumberBytes(options));
  }

  Status Open() {
    gpu::Device& device = *options_.device;
    const uint64_t rows = ShareOf(options_.device_rows, options_.buffers, g_);
    const uint64_t host_rows = ShareOf(options_.host_rows, options_.buffers, g_);
    if (rows > 0) {
      QUARRY_TRY(rows_, gpu::AllocateMemory(device, rows * options_.stride_bytes));
    }
    QUARRY_TRY(staged_, gpu::AllocateMemory(device, StagingBytes(options_)));
    QUARRY_TRY(numbers_, gpu::AllocateMemory(device, NumberBytes(options_)));
    if (host_rows > 0) {
      QUARRY_TRY(host_rows_, IoBuffer::Allocate(host_rows * options_.stride_bytes));
    }
    QUARRY_TRY(staging_, IoBuffer::Allocate(kHalves * StagingBytes(options_)));
    QUARRY_TRY(host_numbers_, IoBuffer::Allocate(NumberBytes(options_)));
    QUARRY_TRY(pinned_staging_, gpu::PinMemory(device, staging_.span()));
    QUARRY_TRY(pinned_numbers_, gpu::PinMemory(device, host_numbers_.span()));
    QUARRY_TRY(stream_, gpu::MakeStream(device));
    QUARRY_TRY(numbers_copied_, gpu::MakeEvent(device));
    for (gpu::Event& copied : staging_copied_) {
      QUARRY_TRY(copied, gpu::MakeEvent(device));
    }
    QUARRY_TRY(thread_, Thread::Start(
                            "device cache", [this] { Run(); },
                            [this](const Status& why) {
                              if (failed_.ok()) failed_ = why;
                              if (serving_ != nullptr) std::exchange(serving_, nullptr)->End(failed_);
                              Run();
                            }));
    return Status::Ok();
  }
  // What was begun is ended: nothing that is enqueued may outlive its memory.
  ~Buffer() {
    queue_.Close();
    thread_.Join();
    if (stream_) static_cast<void>(options_.device->Synchronize(stream_.get()));
  }

  void Push(Flight* flight) { queue_.Push(flight); }
  void AddTo(MultiDeviceCacheCounts& counts) const {
    counts.device_hits += device_hits_;
    counts.device_evictions += device_evictions_;
    counts.host_hits += host_hits_;
    counts.host_evictions += host_evictions_;
    counts.fetched += fetched_;
  }

 private:
  // A row that the device does not have, where it is and where it goes.
  struct Miss {
    uint32_t place = 0;  // in the batch
    uint32_t slot = 0;   // of the device's rows, or kNoSlot
    uint32_t host_found = 0, host_entered = 0;
  };

  static FifoRows::Options RowsOf(const MultiDeviceCacheOptions& options, uint64_t rows, uint32_t g) {
    return {.node_count = rows == 0 ? 0 : options.node_count,
            .buffers = options.buffers,
            .capacity = ShareOf(rows, options.buffers, g),
            .batch_nodes_max = options.batch_nodes_max};
  }

  void Run() {
    while (const auto flight = queue_.Pop()) {
      serving_ = *flight;
      if (failed_.ok()) failed_ = Serve(*serving_);
      std::exchange(serving_, nullptr)->End(failed_);
    }
  }

  // After an error, too, `written` happens behind all that was enqueued.
  Status Serve(const Flight& flight) {
    gpu::Device& device = *options_.device;
    QUARRY_RETURN_IF_ERROR(device.Wait(stream_.get(), flight.may_write.get()));
    const Status copied = CopyAll(flight);
    const Status recorded = device.Record(flight.written[g_].get(), stream_.get());
    return copied.ok() ? recorded : copied;
  }

  Status CopyAll(const Flight& flight) {
    gpu::Device& device = *options_.device;
    const size_t begin = flight.begins[g_], count = flight.begins[g_ + 1] - begin;
    if (count == 0) return Status::Ok();
    const std::span nodes = std::span(flight.nodes).subspan(begin, count);
    const std::span places = std::span(flight.places).subspan(begin, count);
    device_evictions_ += on_device_.Step(nodes, found_, entered_);
    const size_t on_host = FindMisses(nodes, places);
    const size_t hits = count - misses_.size();

    // The numbers of the batch: [slots of hits | their places | places of misses | staged rows of those that enter | their
    // slots], in one copy.
    QUARRY_RETURN_IF_ERROR(device.Synchronize(numbers_copied_.get()));
    auto* const numbers = reinterpret_cast<uint32_t*>(host_numbers_.data());
    uint32_t *slot = numbers, *place = numbers + hits;
    for (size_t i = 0; i < count; ++i) {
      if (found_[i] == FifoRows::kNoSlot) continue;
      *slot++ = found_[i];
      *place++ = places[i];
    }
    for (const Miss& miss : misses_) *place++ = miss.place;
    uint32_t* const entering_rows = place;
    const auto entering = static_cast<size_t>(
        std::ranges::count_if(misses_, [](const Miss& miss) { return miss.slot != FifoRows::kNoSlot; }));
    uint32_t *row = entering_rows, *entering_slot = entering_rows + entering;
    for (size_t j = 0; j < misses_.size(); ++j) {
      if (misses_[j].slot == FifoRows::kNoSlot) continue;
      *row++ = static_cast<uint32_t>(j % StagedRows(options_));
      *entering_slot++ = misses_[j].slot;
    }
    QUARRY_RETURN_IF_ERROR(device.CopyIn(numbers_.get().data(), host_numbers_.data(),
                                         static_cast<uint64_t>(entering_slot - numbers) * sizeof(uint32_t),
                                         stream_.get()));
    QUARRY_RETURN_IF_ERROR(device.Record(numbers_copied_.get(), stream_.get()));
    const auto* const there = reinterpret_cast<const uint32_t*>(numbers_.get().data());

    // Hits before what takes their slots.
    QUARRY_RETURN_IF_ERROR(Copy(rows_.get().data(), there, flight.out, there + hits, hits));
    const uint32_t *place_there = there + 2 * hits, *row_there = place_there + misses_.size(),
                   *slot_there = row_there + entering;
    for (size_t first = 0, half = 0; first < misses_.size(); first += StagedRows(options_), half = 1 - half) {
      const std::span<const Miss> misses =
          std::span(misses_).subspan(first, std::min<size_t>(StagedRows(options_), misses_.size() - first));
      QUARRY_RETURN_IF_ERROR(Stage(misses, first, on_host, half));
      QUARRY_RETURN_IF_ERROR(
          Copy(staged_.get().data(), nullptr, flight.out, place_there + first, misses.size()));
      const auto enter = static_cast<size_t>(
          std::ranges::count_if(misses, [](const Miss& miss) { return miss.slot != FifoRows::kNoSlot; }));
      QUARRY_RETURN_IF_ERROR(Copy(staged_.get().data(), row_there, rows_.get().data(), slot_there, enter));
      row_there += enter;
      slot_there += enter;
    }
    device_hits_ += hits;
    host_hits_ += on_host;
    fetched_ += misses_.size() - on_host;
    return Status::Ok();
  }

  // Sets misses_: first those that the host has, as what is fetched may take their slots. Returns how many those are; nodes_
  // are the others.
  size_t FindMisses(std::span<const NodeId> nodes, std::span<const uint32_t> places) {
    size_t count = 0;
    for (uint32_t i = 0; i < nodes.size(); ++i) {
      if (found_[i] != FifoRows::kNoSlot) continue;
      positions_[count] = i;
      nodes_[count++] = nodes[i];
    }
    host_evictions_ += on_host_.Step(std::span(nodes_).first(count), found_on_host_, entered_on_host_);
    misses_.clear();
    size_t on_host = 0, fetched = 0;
    for (const bool held : {true, false}) {
      for (size_t j = 0; j < count; ++j) {
        if ((found_on_host_[j] != FifoRows::kNoSlot) != held) continue;
        misses_.push_back({.place = places[positions_[j]],
                           .slot = entered_[positions_[j]],
                           .host_found = found_on_host_[j],
                           .host_entered = entered_on_host_[j]});
        if (!held) nodes_[fetched++] = nodes_[j];
      }
      if (held) on_host = misses_.size();
    }
    return on_host;
  }

  // Brings the rows of misses [first, ...) to the device's staged rows, and those that enter the host's level there.
  Status Stage(std::span<const Miss> misses, size_t first, size_t on_host, size_t half) {
    gpu::Device& device = *options_.device;
    const uint64_t stride = options_.stride_bytes;
    QUARRY_RETURN_IF_ERROR(device.Synchronize(staging_copied_[half].get()));
    std::byte* const staging = staging_.data() + half * StagingBytes(options_);
    const size_t held = std::min(misses.size(), on_host - std::min(on_host, first));
    for (size_t j = 0; j < held; ++j) {
      std::memcpy(staging + j * stride, host_rows_.data() + misses[j].host_found * stride, stride);
    }
    if (held < misses.size()) {
      QUARRY_RETURN_IF_ERROR(
          fetch_(std::span<const NodeId>(nodes_).subspan(first + held - on_host, misses.size() - held),
                 {staging + held * stride, (misses.size() - held) * stride}));
    }
    for (size_t j = held; j < misses.size(); ++j) {
      if (misses[j].host_entered == FifoRows::kNoSlot) continue;
      std::memcpy(host_rows_.data() + misses[j].host_entered * stride, staging + j * stride, stride);
    }
    QUARRY_RETURN_IF_ERROR(
        device.CopyIn(staged_.get().data(), staging, misses.size() * stride, stream_.get()));
    return device.Record(staging_copied_[half].get(), stream_.get());
  }

  Status Copy(const std::byte* from, const uint32_t* from_rows, std::byte* to, const uint32_t* to_rows,
              uint64_t rows) {
    return gpu::CopyRows(*options_.device,
                         {.from = from,
                          .to = to,
                          .from_rows = from_rows,
                          .to_rows = to_rows,
                          .rows = rows,
                          .row_bytes = options_.stride_bytes,
                          .from_stride_bytes = options_.stride_bytes,
                          .to_stride_bytes = options_.stride_bytes},
                         stream_.get());
  }

  const MultiDeviceCacheOptions& options_;
  const Fetch& fetch_;
  const uint32_t g_;

  BoundedQueue<Flight*> queue_;
  // The thread's alone, once it runs.
  FifoRows on_device_, on_host_;
  std::vector<uint32_t> found_, entered_;                              // by node of a query
  std::vector<uint32_t> positions_, found_on_host_, entered_on_host_;  // by miss, as the query has them
  std::vector<NodeId> nodes_;
  std::vector<Miss> misses_;
  gpu::Memory rows_, staged_, numbers_;
  IoBuffer host_rows_, staging_, host_numbers_;
  gpu::Pinned pinned_staging_, pinned_numbers_;
  gpu::Stream stream_;
  gpu::Event numbers_copied_;
  std::array<gpu::Event, kHalves> staging_copied_;
  Flight* serving_ = nullptr;
  Status failed_;

  std::atomic<uint64_t> device_hits_{0}, device_evictions_{0}, host_hits_{0}, host_evictions_{0}, fetched_{0};
  Thread thread_;  // last
};

uint64_t MultiDeviceCache::HostBytes(const MultiDeviceCacheOptions& options) {
  uint64_t bytes =
      options.batches_in_flight * (options.batch_nodes_max * (sizeof(NodeId) + sizeof(uint32_t)) +
                                   (options.buffers + 1) * sizeof(size_t));
  for (uint32_t g = 0; g < options.buffers; ++g) bytes += Buffer::Bytes(options, g);
  return bytes;
}

uint64_t MultiDeviceCache::DeviceBytes(const MultiDeviceCacheOptions& options) {
  return options.device_rows * options.stride_bytes +
         options.buffers * (StagingBytes(options) + NumberBytes(options));
}

MultiDeviceCache::MultiDeviceCache(const MultiDeviceCacheOptions& options, Fetch fetch)
    : options_(options), fetch_(std::move(fetch)) {}

MultiDeviceCache::~MultiDeviceCache() = default;

Result<std::unique_ptr<MultiDeviceCache>> MultiDeviceCache::Open(const MultiDeviceCacheOptions& options,
                                                                 Fetch fetch, MemoryBudget& budget) {
  if (options.buffers == 0 || options.batches_in_flight == 0 || options.batch_nodes_max == 0 ||
      options.stride_bytes == 0 || options.stride_bytes % sizeof(float) != 0) {
    return MakeStatus(
        Code::kUsage,
        "a cache on devices with {} buffers, {} batches in flight of {} nodes, rows of {} bytes: each has to "
        "be at least 1, and rows whole floats",
        options.buffers, options.batches_in_flight, options.batch_nodes_max, options.stride_bytes);
  }
  std::unique_ptr<MultiDeviceCache> cache(new MultiDeviceCache(options, std::move(fetch)));
  QUARRY_TRY(cache->reservation_, budget.Reserve(HostBytes(options), "the cache on devices"));
  for (uint32_t i = 0; i < options.batches_in_flight; ++i) {
    auto flight = std::make_unique<Flight>();
    QUARRY_TRY(flight->may_write, gpu::MakeEvent(*options.device));
    flight->written.resize(options.buffers);
    for (gpu::Event& written : flight->written) {
      QUARRY_TRY(written, gpu::MakeEvent(*options.device));
    }
    flight->nodes.resize(options.batch_nodes_max);
    flight->places.resize(options.batch_nodes_max);
    flight->begins.resize(options.buffers + 1);
    cache->flights_.push_back(std::move(flight));
  }
  for (uint32_t g = 0; g < options.buffers; ++g) {
    cache->buffers_.push_back(std::make_unique<Buffer>(*cache, g));
    QUARRY_RETURN_IF_ERROR(cache->buffers_.back()->Open());
  }
  return cache;
}

Result<MultiDeviceCache::Ticket> MultiDeviceCache::Begin(std::span<const NodeId> nodes, std::byte* out,
                                                         gpu::StreamHandle stream) {
  if (nodes.size() > options_.batch_nodes_max) {
    return MakeStatus(Code::kUsage,
                      "a batch of {} nodes for a cache on devices whose batches have at most {}",
                      nodes.size(), options_.batch_nodes_max);
  }
  for (const NodeId node : nodes) {
    if (node < options_.node_count) continue;
    return MakeStatus(Code::kUsage, "node {} for a cache on devices of {} nodes", node, options_.node_count);
  }
  const auto free = std::ranges::find_if(flights_, [](const auto& flight) { return !flight->begun; });
  if (free == flights_.end()) {
    return MakeStatus(Code::kUsage, "a batch beside the {} that a cache on devices has in flight",
                      options_.batches_in_flight);
  }
  Flight& flight = **free;
  // Counted, then put where the counts say: the nodes of a buffer stay in the batch's order.
  std::ranges::fill(flight.begins, 0);
  for (const NodeId node : nodes) ++flight.begins[node % options_.buffers + 1];
  std::partial_sum(flight.begins.begin(), flight.begins.end(), flight.begins.begin());
  for (uint32_t i = 0; i < nodes.size(); ++i) {
    const size_t at = flight.begins[nodes[i] % options_.buffers]++;
    flight.nodes[at] = nodes[i];
    flight.places[at] = i;
  }
  std::shift_right(flight.begins.begin(), flight.begins.end(), 1);
  flight.begins[0] = 0;
  flight.out = out;
  flight.stream = stream;
  QUARRY_RETURN_IF_ERROR(options_.device->Record(flight.may_write.get(), stream));
  flight.begun = true;
  {
    MutexLock lock(flight.mutex);
    flight.remaining = options_.buffers;
    flight.status = Status::Ok();
  }
  for (const auto& buffer : buffers_) buffer->Push(&flight);
  return Ticket{static_cast<uint32_t>(free - flights_.begin())};
}

Status MultiDeviceCache::Finish(Ticket ticket) {
  assert(ticket.flight < flights_.size() && flights_[ticket.flight]->begun);
  Flight& flight = *flights_[ticket.flight];
  Status status;
  {
    MutexLock lock(flight.mutex);
    while (flight.remaining > 0) flight.changed.Wait(flight.mutex);
    status = flight.status;
  }
  flight.begun = false;
  // After an error too: what was enqueued writes to the batch's memory.
  for (const gpu::Event& written : flight.written) {
    const Status waits = options_.device->Wait(flight.stream, written.get());
    if (status.ok()) status = waits;
  }
  return status;
}

MultiDeviceCacheCounts MultiDeviceCache::counts() const {
  MultiDeviceCacheCounts counts;
  for (const auto& buffer : buffers_) buffer->AddTo(counts);
  return counts;
}

}  // namespace quarry
