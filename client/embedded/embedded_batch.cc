#include "embedded_batch.h"

#include <algorithm>
#include <utility>

namespace quarry::client {
namespace {

wire::BatchView ViewOfBlock(const Block& block) {
  wire::BatchView view;
  view.shape = {.hops = block.hops(),
                .seeds = block.seed_count(),
                .targets = block.hop_offsets[block.hops() - 1],
                .nodes = static_cast<uint32_t>(block.nodes.size()),
                .edges = block.indices.size()};
  view.hop_offsets = block.hop_offsets;
  view.indptr = block.indptr;
  view.indices = block.indices;
  view.nodes = block.nodes;
  return view;
}

// Rows lie where the road has them: scattered over its memory, of which a view goes to the last that is used.
void AddFeatures(const FeatureView& features, wire::BatchView& view) {
  if (features.dim == 0 || features.slots.empty()) return;
  view.shape.element_type = features.element_type;
  view.shape.dim = features.dim;
  view.shape.stride_bytes = features.stride_bytes;
  view.shape.rows = uint64_t{*std::ranges::max_element(features.slots)} + 1;
  view.shape.slots = true;
  view.slots = features.slots;
  view.rows = {features.base, view.shape.rows * features.stride_bytes};
}

class RoadBatch final : public Batch {
 public:
  RoadBatch(std::unique_ptr<quarry::Batch> batch, std::shared_ptr<const void> held)
      : held_(std::move(held)), batch_(std::move(batch)), view_(ViewOfBlock(batch_->block())) {
    view_.shape.index = batch_->index();
    view_.shape.labels = !batch_->labels().empty();
    view_.labels = batch_->labels();
    AddFeatures(batch_->features(), view_);
  }
  uint64_t index() const override { return view_.shape.index; }
  const wire::BatchView& view() const override { return view_; }

 private:
  const std::shared_ptr<const void> held_;  // let go behind the batch
  const std::unique_ptr<quarry::Batch> batch_;
  wire::BatchView view_;
};

class BlockBatch final : public Batch {
 public:
  BlockBatch(Block block, std::shared_ptr<const void> held)
      : held_(std::move(held)), block_(std::move(block)), view_(ViewOfBlock(block_)) {}
  uint64_t index() const override { return 0; }
  const wire::BatchView& view() const override { return view_; }

 private:
  const std::shared_ptr<const void> held_;
  const Block block_;
  const wire::BatchView view_;
};

}  // namespace

std::unique_ptr<Batch> WrapBatch(std::unique_ptr<quarry::Batch> batch, std::shared_ptr<const void> held) {
  return std::make_unique<RoadBatch>(std::move(batch), std::move(held));
}

std::unique_ptr<Batch> WrapBlock(Block block, std::shared_ptr<const void> held) {
  return std::make_unique<BlockBatch>(std::move(block), std::move(held));
}

}  // namespace quarry::client
