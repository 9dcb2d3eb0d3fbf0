// RemoteRoad: the road of a stream that a store gave out (client::Store), which a trainer cannot tell from
// one of its own. The engine that makes its batches is the server's; their rows are read where the server put
// them.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "quarry/client/store.h"
#include "quarry/format/road_spec.h"
#include "quarry/pipeline/batch_stream.h"
#include "quarry/storage/node_properties.h"

namespace quarry {

// Labels and splits of all nodes, as of the snapshot; looked up in pieces.
Result<NodeProperties> LookUpProperties(client::Store& store, const client::Snapshot& snapshot);

// How many neighbors each of `node_count` nodes has along `direction`, as the database has it now.
Result<std::vector<uint32_t>> LookUpDegrees(client::Store& store, Direction direction, uint64_t node_count);

// One thread at a time.
class RemoteRoad final : public Road {
 public:
  // `sharers`: how many clients its batches are shared out to, one of which this is; 1: all are ours.
  // `properties`: none by parts, whose stream says what is asked of a road.
  RemoteRoad(std::unique_ptr<client::Stream> stream, NodeProperties properties, uint32_t sharers = 1)
      : stream_(std::move(stream)),
        parts_(stream_->parts()),
        properties_(std::move(properties)),
        sharers_(sharers) {}

  Result<std::unique_ptr<BatchStream>> StartPass(PassOptions options) override;
  Result<std::unique_ptr<BatchStream>> StartSplit(Split split, PassOptions options) override;
  std::span<const int64_t> labels() const override { return properties_.labels; }
  std::vector<NodeId> SplitNodes(Split split) const override { return properties_.SplitNodes(split); }
  uint64_t CountNodes(Split split) const override {
    return parts_ ? parts_->NodesIn(split) : Road::CountNodes(split);
  }
  uint32_t class_count() const override { return parts_ ? parts_->class_count : Road::class_count(); }
  uint32_t feature_dim() const override { return stream_->feature_dim(); }

 private:
  Result<std::unique_ptr<BatchStream>> Start(wire::StartPass request);

  const std::unique_ptr<client::Stream> stream_;
  const std::optional<wire::OpenedParts> parts_;
  const NodeProperties properties_;
  const uint32_t sharers_;
};

}  // namespace quarry
