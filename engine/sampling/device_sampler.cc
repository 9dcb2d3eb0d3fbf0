#include "quarry/sampling/device_sampler.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <span>
#include <utility>
#include <vector>

#include "hop_draw.h"
#include "quarry/base/mutex.h"
#include "quarry/base/process.h"
#include "quarry/base/units.h"
#include "quarry/gpu/sampling.h"
#include "quarry/io/buffer.h"

namespace quarry {
namespace {

// Blocks come back through so much pinned memory.
constexpr uint64_t kStagingBytes = 4 * kMiB;

// Told by the driver that a stream has come so far.
class Arrival {
 public:
  Status Await(gpu::Device& device, gpu::StreamHandle stream) {
    {
      MutexLock lock(mutex_);
      arrived_ = false;
    }
    QUARRY_RETURN_IF_ERROR(device.CallHost(stream, &Arrival::Arrive, this));
    MutexLock lock(mutex_);
    while (!arrived_) {
      // A device that is lost calls nobody, so it is asked now and then.
      constexpr std::chrono::milliseconds kPatience(100);
      if (changed_.WaitUntil(mutex_, std::chrono::steady_clock::now() + kPatience) || arrived_) continue;
      QUARRY_RETURN_IF_ERROR(device.FreeBytes().status());
    }
    return Status::Ok();
  }

 private:
  static void Arrive(void* context) {
    auto* const arrival = static_cast<Arrival*>(context);
    MutexLock lock(arrival->mutex_);
    arrival->arrived_ = true;
    arrival->changed_.NotifyAll();
  }

  Mutex mutex_;
  CondVar changed_;
  bool arrived_ QUARRY_GUARDED_BY(mutex_) = false;
};

class DeviceSampler final : public NeighborSampler {
 public:
  DeviceSampler(const DeviceLists& lists, const RoadSpec& spec, uint64_t seeds_max)
      : lists_(lists), device_(lists.device()), spec_(spec), seeds_max_(seeds_max) {}
  ~DeviceSampler() override {
    // What is under way points into all of this.
    if (stream_) static_cast<void>(device_.Synchronize(stream_.get()));
  }

  Status Allocate() {
    const gpu::BlockBounds bounds(lists_.node_count(), spec_.fanouts, seeds_max_);
    const uint64_t bytes = arrays_.Carve(nullptr, lists_.node_count(), bounds, draws());
    QUARRY_TRY(memory_, gpu::AllocateMemory(device_, bytes));
    arrays_.Carve(memory_.get().data(), lists_.node_count(), bounds, draws());
    QUARRY_TRY(host_, IoBuffer::Allocate(StagingBytes(seeds_max_)));
    QUARRY_TRY(pinned_, gpu::PinMemory(device_, host_.span()));
    QUARRY_TRY(stream_, gpu::MakeStream(device_));
    return device_.Fill(reinterpret_cast<std::byte*>(arrays_.block.locals), 0xff,
                        lists_.node_count() * sizeof(uint32_t), stream_.get());
  }
  static uint64_t StagingBytes(uint64_t seeds_max) {
    return std::max(kStagingBytes, seeds_max * sizeof(NodeId));
  }

  Status Sample(std::span<const NodeId> seeds, const DrawSeed& seed, Block& block) override {
    QUARRY_RETURN_IF_ERROR(broken_);
    QUARRY_RETURN_IF_ERROR(CheckSeeds(seeds));
    const double start = MonotonicSeconds();
    if (seeds.empty()) {
      block = {.hop_offsets = std::vector<uint32_t>(spec_.fanouts.size() + 1, 0), .indptr = {0}};
      return Status::Ok();
    }
    broken_ = Make(seeds, seed.own, block);
    stats_.edges += block.indices.size();
    stats_.nodes += block.nodes.size();
    stats_.seconds += MonotonicSeconds() - start;
    return broken_;
  }
  const SamplerStats& stats() const override { return stats_; }
  uint64_t scratch_bytes() const override { return host_.mapped_bytes(); }

 private:
  Status CheckSeeds(std::span<const NodeId> seeds);
  Status Make(std::span<const NodeId> seeds, uint64_t seed, Block& block);
  template <typename T>
  Status TakeOver(const T* from, std::vector<T>& to, uint64_t count);
  gpu::BlockDraws draws() const {
    return {.fanouts = spec_.fanouts, .replace = spec_.replace, .keeps_positions = spec_.edge_ids};
  }

  const DeviceLists& lists_;
  gpu::Device& device_;
  const RoadSpec spec_;
  const uint64_t seeds_max_;
  gpu::Memory memory_;
  gpu::BlockArrays arrays_;
  IoBuffer host_;
  gpu::Pinned pinned_;
  Arrival arrival_;
  gpu::Stream stream_;
  std::vector<std::pair<NodeId, size_t>> sorted_;
  SamplerStats stats_;
  Status broken_;
};

Status DeviceSampler::CheckSeeds(std::span<const NodeId> seeds) {
  sorted_.clear();
  for (const NodeId seed : seeds) {
    if (seed >= lists_.node_count()) {
      return MakeStatus(Code::kInvalidArgument, "seed node {} is out of range: the graph has {} nodes", seed,
                        lists_.node_count());
    }
    sorted_.emplace_back(seed, sorted_.size());
  }
  if (seeds.size() > seeds_max_) {
    return MakeStatus(Code::kInvalidArgument, "{} seeds: the sampler on the device takes at most {}",
                      seeds.size(), seeds_max_);
  }
  std::ranges::sort(sorted_);
  size_t again = seeds.size(), before = 0;  // the first that was there before
  for (size_t i = 1; i < sorted_.size(); ++i) {
    if (sorted_[i].first != sorted_[i - 1].first || sorted_[i].second > again) continue;
    again = sorted_[i].second;
    before = sorted_[i - 1].second;
  }
  if (again == seeds.size()) return Status::Ok();
  return MakeStatus(Code::kInvalidArgument, "seed node {} is given twice: at {} and at {}", seeds[again],
                    before, again);
}

Status DeviceSampler::Make(std::span<const NodeId> seeds, uint64_t seed, Block& block) {
  const gpu::BlockBounds bounds(lists_.node_count(), spec_.fanouts, seeds.size());
  const auto hops = static_cast<uint32_t>(spec_.fanouts.size());
  std::memcpy(host_.data(), seeds.data(), seeds.size_bytes());
  QUARRY_RETURN_IF_ERROR(device_.CopyIn(reinterpret_cast<std::byte*>(arrays_.block.nodes), host_.data(),
                                        seeds.size_bytes(), stream_.get()));
  QUARRY_RETURN_IF_ERROR(
      gpu::EnqueueBlock(device_, stream_.get(), arrays_, lists_.lists(), bounds, draws(), seed));
  std::vector<uint32_t> marks;
  QUARRY_RETURN_IF_ERROR(TakeOver<uint32_t>(arrays_.marks, marks, 2 * hops + 3));
  block.hop_offsets.assign(marks.begin() + 1, marks.begin() + hops + 2);
  const uint32_t nodes = marks[hops + 1], targets = marks[hops], edges = marks.back();
  QUARRY_RETURN_IF_ERROR(TakeOver<NodeId>(arrays_.block.nodes, block.nodes, nodes));
  QUARRY_RETURN_IF_ERROR(TakeOver<uint32_t>(arrays_.block.indptr, block.indptr, uint64_t{targets} + 1));
  QUARRY_RETURN_IF_ERROR(TakeOver<uint32_t>(arrays_.block.indices, block.indices, edges));
  QUARRY_RETURN_IF_ERROR(
      TakeOver<uint64_t>(arrays_.block.positions, block.edge_ids, spec_.edge_ids ? edges : 0));
  return gpu::EnqueueForgetting(device_, stream_.get(), arrays_, bounds);
}

template <typename T>
Status DeviceSampler::TakeOver(const T* from, std::vector<T>& to, uint64_t count) {
  to.resize(count);
  const uint64_t at_once = StagingBytes(seeds_max_) / sizeof(T);
  for (uint64_t first = 0; first < count; first += at_once) {
    const uint64_t some = std::min(at_once, count - first);
    QUARRY_RETURN_IF_ERROR(device_.CopyOut(host_.data(), reinterpret_cast<const std::byte*>(from + first),
                                           some * sizeof(T), stream_.get()));
    QUARRY_RETURN_IF_ERROR(arrival_.Await(device_, stream_.get()));
    std::memcpy(to.data() + first, host_.data(), some * sizeof(T));
  }
  return Status::Ok();
}

}  // namespace

uint64_t DeviceLists::DeviceBytes(uint64_t node_count, uint64_t edge_count, Direction direction) {
  return SidesOf(direction).size() * ((node_count + 1) * sizeof(uint64_t) + edge_count * sizeof(NodeId));
}

Result<std::unique_ptr<DeviceLists>> DeviceLists::Load(gpu::Device& device, const Topology& topology,
                                                       Direction direction) {
  std::unique_ptr<DeviceLists> made(new DeviceLists);
  made->device_ = &device;
  made->node_count_ = topology.node_count();
  made->direction_ = direction;
  const auto load = [&](std::span<const std::byte> host, gpu::Memory& memory,
                        gpu::StreamHandle stream) -> Status {
    QUARRY_TRY(memory, gpu::AllocateMemory(device, std::max<uint64_t>(host.size(), sizeof(uint64_t))));
    // By way of pinned memory: a copy of any other waits for the device in the driver.
    QUARRY_TRY(IoBuffer staging, IoBuffer::Allocate(kStagingBytes));
    QUARRY_TRY(const gpu::Pinned pinned, gpu::PinMemory(device, staging.span()));
    for (uint64_t first = 0; first < host.size(); first += kStagingBytes) {
      const uint64_t some = std::min<uint64_t>(kStagingBytes, host.size() - first);
      std::memcpy(staging.data(), host.data() + first, some);
      QUARRY_RETURN_IF_ERROR(device.CopyIn(memory.get().data() + first, staging.data(), some, stream));
      QUARRY_RETURN_IF_ERROR(device.Synchronize(stream));
    }
    return Status::Ok();
  };
  QUARRY_TRY(const gpu::Stream stream, gpu::MakeStream(device));
  for (const Adjacency side : SidesOf(direction)) {
    if (!topology.has(side)) {
      return MakeStatus(
          Code::kInvalidArgument,
          "{}: there are no {} lists, which this direction needs: import with --both-directions",
          topology.file().path(), side == Adjacency::kCsc ? "in-neighbor" : "out-neighbor");
    }
    const uint32_t at = made->lists_.side_count++;
    QUARRY_RETURN_IF_ERROR(load(std::as_bytes(topology.indptr(side)), made->indptr_[at], stream.get()));
    QUARRY_RETURN_IF_ERROR(load(std::as_bytes(topology.indices(side)), made->indices_[at], stream.get()));
    made->lists_.sides[at] = {.indptr = reinterpret_cast<const uint64_t*>(made->indptr_[at].get().data()),
                              .indices = reinterpret_cast<const uint32_t*>(made->indices_[at].get().data())};
  }
  return made;
}

DeviceSamplerNeed NeedOfDeviceSampler(uint64_t node_count, const RoadSpec& spec, uint64_t seeds_max) {
  gpu::BlockArrays arrays;
  const gpu::BlockDraws draws = {
      .fanouts = spec.fanouts, .replace = spec.replace, .keeps_positions = spec.edge_ids};
  const gpu::BlockBounds bounds(node_count, spec.fanouts, seeds_max);
  return {.device_bytes = arrays.Carve(nullptr, node_count, bounds, draws),
          .pinned_bytes = IoBuffer::MappedBytes(DeviceSampler::StagingBytes(seeds_max))};
}

Result<std::unique_ptr<NeighborSampler>> MakeDeviceSampler(const DeviceLists& lists, const RoadSpec& spec,
                                                           uint64_t seeds_max) {
  QUARRY_RETURN_IF_ERROR(CheckFanouts(spec.fanouts));
  if (!spec.DrawsPlainly()) {
    return MakeStatus(Code::kUnsupported,
                      "the device draws uniformly, of each node by itself: take {} on the processor",
                      spec.weighted                   ? "weighted samples"
                      : spec.relation_fanouts.empty() ? "the sampler 'labor'"
                                                      : "fanouts by type of edges");
  }
  if (spec.edge_ids && lists.direction() != Direction::kIn) {
    return MakeStatus(
        Code::kUnsupported,
        "direction '{}' has no edge ids, which are positions among in-neighbors: take direction 'in'",
        NameOf(lists.direction()));
  }
  const gpu::BlockBounds bounds(lists.node_count(), spec.fanouts, seeds_max);
  if (bounds.all_edges >= gpu::GrowingBlock::kMetAt) {
    return MakeStatus(
        Code::kUnsupported,
        "a block of {} seeds may have {} edges, and the device draws fewer than {}: take fewer seeds or "
        "smaller fanouts",
        seeds_max, bounds.all_edges, gpu::GrowingBlock::kMetAt);
  }
  auto sampler = std::make_unique<DeviceSampler>(lists, spec, seeds_max);
  QUARRY_RETURN_IF_ERROR(sampler->Allocate());
  return sampler;
}

}  // namespace quarry
