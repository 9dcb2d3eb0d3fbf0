// Passes over roads to a fake device: every batch as its taker finds it there, and as it must be.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <deque>
#include <memory>
#include <vector>

#include "pipeline/tiny_database.h"
#include "quarry/gpu/handles.h"
#include "quarry/pipeline/batch_stream.h"
#include "support/fake_device.h"
#include "support/status_matchers.h"

namespace quarry::testing_util {

// What a taker gets of a batch.
struct DeviceCopy {
  std::vector<std::byte> x;
  std::vector<int64_t> edge_index, nodes, labels;
  bool operator==(const DeviceCopy&) const = default;
};

// What a taker must get of the batch; decode(i, out) gives the row of node i.
template <typename Decode>
DeviceCopy CopyOf(const BatchView& view, uint64_t dim, const Decode& decode) {
  DeviceCopy copy;
  std::vector<float> row(dim);
  for (size_t i = 0; i < view.nodes.size(); ++i) {
    decode(i, std::span(row));
    const auto bytes = std::as_bytes(std::span(row));
    copy.x.insert(copy.x.end(), bytes.begin(), bytes.end());
  }
  copy.nodes.assign(view.nodes.begin(), view.nodes.end());
  copy.labels.assign(view.labels.begin(), view.labels.end());
  copy.edge_index.assign(view.indices.begin(), view.indices.end());
  for (uint32_t target = 0; target < view.target_count(); ++target) {
    copy.edge_index.insert(copy.edge_index.end(), view.indptr[target + 1] - view.indptr[target], target);
  }
  return copy;
}

// By the rows of the graph, and the batch's view.
inline DeviceCopy ExpectedCopy(const BatchView& view, const TinyGraph& graph) {
  return CopyOf(view, graph.dim, [&](size_t i, std::span<float> row) {
    DecodeRow(graph.type, graph.Row(view.nodes[i]), row);
  });
}

// Takes batches as a framework does: memory of its own for each, on streams of its own, which nobody waits for before
// the pass is over.
class DeviceTaker {
 public:
  explicit DeviceTaker(FakeDevice& device) : device_(device) {
    for (gpu::Stream& stream : streams_) {
      auto made = gpu::MakeStream(device);
      if (made.ok()) stream = std::move(made).value();
    }
  }
  ~DeviceTaker() { device_.Drain(); }

  Status Take(const Batch& batch, const TinyGraph& graph) {
    return Take(batch, ExpectedCopy(batch.view(), graph));
  }
  Status Take(const Batch& batch, DeviceCopy expected) {
    if (batch.on_device() == nullptr) return Status(Code::kInternal, "a batch in memory");
    Taken taken{.expected = std::move(expected)};
    const DeviceCopy& want = taken.expected;
    const auto room = [&](uint64_t bytes) {
      return gpu::AllocateMemory(device_, std::max<uint64_t>(bytes, 8));
    };
    QUARRY_TRY(taken.x, room(want.x.size()));
    QUARRY_TRY(taken.edges, room(want.edge_index.size() * 8));
    QUARRY_TRY(taken.nodes, room(want.nodes.size() * 8));
    QUARRY_TRY(taken.labels, room(want.labels.size() * 8));
    const auto ids = [](const gpu::Memory& memory) {
      return reinterpret_cast<int64_t*>(memory.get().data());
    };
    const gpu::StreamHandle stream = streams_[taken_.size() % streams_.size()].get();
    const Status status = batch.on_device()->WriteTo({.x = taken.x.get().data(),
                                                      .edge_index = ids(taken.edges),
                                                      .nodes = ids(taken.nodes),
                                                      .labels = ids(taken.labels)},
                                                     stream.raw);
    taken_.push_back(std::move(taken));
    if (status.ok()) {
      EXPECT_EQ(batch.on_device()->WriteTo({}, stream.raw).code(), Code::kUsage);
    }
    return status;
  }
  // Whether all batches of the pass are what they must be; forgets them.
  void Check() {
    device_.Drain();
    for (size_t i = 0; i < taken_.size(); ++i) {
      const DeviceCopy& want = taken_[i].expected;
      DeviceCopy got;
      const auto ids = [](const gpu::Memory& memory, size_t count) {
        const auto* const from = reinterpret_cast<const int64_t*>(memory.get().data());
        return std::vector<int64_t>(from, from + count);
      };
      got.x.assign(taken_[i].x.get().data(), taken_[i].x.get().data() + want.x.size());
      got.edge_index = ids(taken_[i].edges, want.edge_index.size());
      got.nodes = ids(taken_[i].nodes, want.nodes.size());
      got.labels = ids(taken_[i].labels, want.labels.size());
      EXPECT_TRUE(got.x == want.x) << "rows of batch " << i << " from row "
                                   << (std::ranges::mismatch(got.x, want.x).in1 - got.x.begin()) *
                                          want.nodes.size() / std::max<size_t>(1, want.x.size())
                                   << " of " << want.nodes.size();
      EXPECT_EQ(got.edge_index, want.edge_index) << i;
      EXPECT_EQ(got.nodes, want.nodes) << i;
      EXPECT_EQ(got.labels, want.labels) << i;
    }
    taken_.clear();
  }
  void Forget() {
    device_.Drain();
    taken_.clear();
  }
  size_t count() const { return taken_.size(); }

 private:
  struct Taken {
    DeviceCopy expected;
    gpu::Memory x, edges, nodes, labels;
  };
  FakeDevice& device_;
  std::array<gpu::Stream, 2> streams_;
  std::deque<Taken> taken_;
};

// One pass, each batch taken (but every `skip`-th; 0: all). The error of whoever met one.
inline Status TakePass(Road& road, const PassOptions& pass, const TinyGraph& graph, DeviceTaker& taker,
                       uint64_t skip = 0, uint64_t batches_max = ~uint64_t{0}) {
  QUARRY_TRY(const std::unique_ptr<BatchStream> stream, road.StartPass(pass));
  for (uint64_t number = 0; number < batches_max; ++number) {
    QUARRY_TRY(const std::unique_ptr<Batch> batch, stream->Next());
    if (batch == nullptr) return Status::Ok();
    if (skip > 0 && number % skip == skip - 1) continue;
    QUARRY_RETURN_IF_ERROR(taker.Take(*batch, graph));
  }
  return Status::Ok();
}

}  // namespace quarry::testing_util
