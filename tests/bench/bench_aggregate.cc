// The first layer's aggregation and a whole training step, beside what the memory and the GEMM allow.
//
// The block has the shape of the 10 M-node trace (docs/benchmarks.md): 1,024 seeds, fanouts 10,15,20, 160
// thousand destinations, 2 million edges into 670 thousand input nodes of 128 features, scattered over a
// feature buffer.
#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <torch/torch.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <numeric>
#include <vector>

#include "node_model.h"
#include "quarry/base/process.h"
#include "quarry/base/random.h"
#include "quarry/base/units.h"
#include "quarry/io/buffer.h"
#include "quarry/sampling/block.h"
#include "quarry/trainer/aggregate.h"

namespace quarry {
namespace {

constexpr uint32_t kDim = 128;
constexpr uint32_t kHidden = 256;
constexpr uint32_t kClasses = 50;
constexpr int kRepeats = 5;

template <typename Function>
double BestSeconds(const Function& function) {
  double best = 1e30;
  for (int i = 0; i < kRepeats; i++) {
    const double start = MonotonicSeconds();
    function();
    best = std::min(best, MonotonicSeconds() - start);
  }
  return best;
}

struct Workload {
  Block block;
  IoBuffer features;  // large enough for float32
  std::vector<uint32_t> slots;
  std::vector<int64_t> labels;

  static Result<Workload> Make() {
    Workload work;
    Rng rng(1);
    Block& block = work.block;
    block.hop_offsets = {1024, 11'000, 160'000, 670'000};
    block.nodes.resize(block.hop_offsets.back());
    std::iota(block.nodes.begin(), block.nodes.end(), 0);
    block.indptr.push_back(0);
    constexpr uint32_t kDegrees[] = {10, 15,
                                     12};  // the last hop's mean: many nodes have fewer than 20 neighbors
    for (uint32_t hop = 0; hop < 3; hop++) {
      for (uint32_t v = hop == 0 ? 0 : block.hop_offsets[hop - 1]; v < block.hop_offsets[hop]; v++) {
        for (uint32_t k = 0; k < kDegrees[hop]; k++) {
          block.indices.push_back(static_cast<uint32_t>(rng.Below(block.hop_offsets[hop + 1])));
        }
        block.indptr.push_back(static_cast<uint32_t>(block.indices.size()));
      }
    }
    QUARRY_TRY(work.features, IoBuffer::Allocate(block.nodes.size() * kDim * sizeof(float)));
    work.slots.resize(block.nodes.size());
    std::iota(work.slots.begin(), work.slots.end(), 0);
    for (size_t i = work.slots.size(); i > 1; i--) std::swap(work.slots[i - 1], work.slots[rng.Below(i)]);
    for (uint32_t i = 0; i < block.seed_count(); i++)
      work.labels.push_back(static_cast<int64_t>(rng.Below(kClasses)));
    return work;
  }

  uint32_t destinations() const { return block.hop_offsets[2]; }

  // Fills the feature buffer with rows of `type`.
  FeatureView Fill(ElementType type) const {
    const uint64_t row_bytes = RowBytes(type, kDim);
    Rng rng(2);
    std::vector<float> values(kDim);
    for (size_t i = 0; i < block.nodes.size(); i++) {
      for (float& value : values) value = static_cast<float>(rng.Unit() - 0.5);
      EncodeRow(type, values, features.span().subspan(i * row_bytes, row_bytes));
    }
    return {features.span(), row_bytes, type, kDim, slots};
  }
};

// The limit: every row that the kernel reads, read once in the same order with prefetch, into a row that
// stays in the cache, and an output of the same size written once.
double ReadRowsSeconds(const Workload& work, const FeatureView& view, std::byte* out) {
  const Block& block = work.block;
  return BestSeconds([&] {
    at::parallel_for(0, work.destinations(), 64, [&](int64_t begin, int64_t end) {
      alignas(64) std::byte row[kDim * sizeof(float)];
      for (int64_t v = begin; v < end; v++) {
        const auto read = [&](uint32_t i) {
          std::memcpy(row, view.Row(i), view.stride_bytes);
          asm volatile("" : : "r"(row) : "memory");
        };
        read(static_cast<uint32_t>(v));
        for (uint32_t e = block.indptr[v]; e < block.indptr[v + 1]; e++) {
          __builtin_prefetch(&view.slots[block.indices[std::min<size_t>(e + 16, block.indices.size() - 1)]]);
          const size_t ahead = std::min<size_t>(e + 8, block.indices.size() - 1);
          const std::byte* next = view.Row(block.indices[ahead]);
          for (size_t line = 0; line < view.stride_bytes; line += 64) __builtin_prefetch(next + line);
          read(block.indices[e]);
        }
        std::memset(out + v * 2 * kDim * sizeof(float), 0, 2 * kDim * sizeof(float));
      }
    });
  });
}

double FusedSeconds(const Workload& work, const FeatureView& view, float* out) {
  return BestSeconds([&] {
    at::parallel_for(0, work.destinations(), 64, [&](int64_t begin, int64_t end) {
      Aggregate({}, view, RowNorm::kNone, work.block.indptr, work.block.indices, static_cast<uint32_t>(begin),
                static_cast<uint32_t>(end), out + begin * 2 * kDim);
    });
  });
}

// What one writes without a kernel of one's own: gather the input nodes, gather the messages, add them up,
// divide, join.
double TorchSeconds(const Workload& work) {
  const torch::NoGradGuard no_grad;
  const Block& block = work.block;
  const auto rows = static_cast<int64_t>(work.destinations());
  const auto longs = [](const auto& values) {
    std::vector<int64_t> wide(values.begin(), values.end());
    return torch::tensor(wide, torch::kLong);
  };
  std::vector<uint32_t> destination(block.indptr[work.destinations()]);
  std::vector<float> degree(work.destinations());
  for (uint32_t v = 0; v < work.destinations(); v++) {
    std::fill(destination.begin() + block.indptr[v], destination.begin() + block.indptr[v + 1], v);
    degree[v] = static_cast<float>(std::max(1U, block.indptr[v + 1] - block.indptr[v]));
  }
  const torch::Tensor slots = longs(work.slots), from = longs(block.indices), to = longs(destination);
  const torch::Tensor divisor = torch::tensor(degree).unsqueeze(1);
  const torch::Tensor buffer =
      torch::from_blob(work.features.data(), {static_cast<int64_t>(block.nodes.size()), kDim});
  return BestSeconds([&] {
    const torch::Tensor x = buffer.index_select(0, slots);
    const torch::Tensor messages = x.index_select(0, from);
    const torch::Tensor mean = torch::zeros({rows, kDim}).index_add_(0, to, messages).div_(divisor);
    const torch::Tensor joined = torch::cat({x.slice(0, 0, rows), mean}, 1);
  });
}

double GemmFlopsPerSecond() {
  const torch::NoGradGuard no_grad;
  const torch::Tensor a = torch::rand({8192, 2 * kDim}), b = torch::rand({2 * kDim, kHidden});
  torch::Tensor c = torch::empty({8192, kHidden});
  return 2.0 * 8192 * 2 * kDim * kHidden / BestSeconds([&] { at::mm_out(c, a, b); });
}

Status Run(unsigned threads) {
  QUARRY_TRY(const Workload work, Workload::Make());
  QUARRY_TRY(IoBuffer out, IoBuffer::Allocate(uint64_t{work.destinations()} * 2 * kDim * sizeof(float)));
  TrainOptions options;
  options.hidden = kHidden;
  options.torch_threads = threads;
  QUARRY_TRY(const std::unique_ptr<NodeModel> model,
             NodeModel::Make(options, kDim, kClasses));  // sets the threads
  fmt::print("{} threads; {} destinations, {} edges, {} input rows\n", threads, work.destinations(),
             work.block.indptr[work.destinations()], work.block.nodes.size());
  double aggregate_seconds = 0;
  FeatureView view;
  for (const ElementType type : {ElementType::kInt8, ElementType::kBfloat16, ElementType::kFloat16,
                                 ElementType::kFloat32}) {  // float32 last: what follows uses it
    view = work.Fill(type);
    const double limit = ReadRowsSeconds(work, view, out.data());
    aggregate_seconds = FusedSeconds(work, view, reinterpret_cast<float*>(out.data()));
    const double bytes = static_cast<double>(work.block.indptr[work.destinations()] + work.destinations()) *
                         static_cast<double>(view.stride_bytes);
    fmt::print(
        "fused gather + mean, {:<8}  {:6.1f} ms, {:5.1f} GB/s of rows; reading the rows alone {:6.1f} ms: "
        "{:3.0f} %\n",
        ElementTypeName(type), aggregate_seconds * 1e3, bytes / aggregate_seconds / 1e9, limit * 1e3,
        100 * limit / aggregate_seconds);
  }
  const double torch_seconds = TorchSeconds(work);
  fmt::print("index_select + index_add, float32   {:6.1f} ms: the fused kernel is {:.1f} times faster\n",
             torch_seconds * 1e3, torch_seconds / aggregate_seconds);

  // Forward, weight gradients of all layers, input gradients of all but the first.
  const double n1 = work.block.hop_offsets[2], n2 = work.block.hop_offsets[1], n3 = work.block.hop_offsets[0];
  const double flops =
      2 * (2 * n1 * 2 * kDim * kHidden + 3 * n2 * 2 * kHidden * kHidden + 3 * n3 * 2 * kHidden * kClasses);
  const double gemm = GemmFlopsPerSecond();
  BatchView batch = work.block.view();
  batch.labels = work.labels;
  batch.features = view;
  Status status;
  const double step = BestSeconds([&] { status = model->TrainStep(batch, 1).status(); });
  QUARRY_RETURN_IF_ERROR(status);
  fmt::print(
      "training step, float32  {:6.1f} ms; its GEMMs at {:.0f} GFLOPS {:6.1f} ms + aggregation {:5.1f} ms: "
      "{:.0f} %\n",
      step * 1e3, gemm / 1e9, flops / gemm * 1e3, aggregate_seconds * 1e3,
      100 * (flops / gemm + aggregate_seconds) / step);
  fmt::print("activations held {}, peak RSS {}\n", FormatBytes(model->activation_bytes()),
             FormatBytes(PeakRssBytes()));
  return Status::Ok();
}

}  // namespace
}  // namespace quarry

int main() {
  for (unsigned threads = 1; threads <= quarry::ProcessorCount(); threads *= 2) {
    const quarry::Status status = quarry::Run(threads);
    if (!status.ok()) {
      fmt::print(stderr, "{}\n", status.ToString());
      return 1;
    }
  }
}
