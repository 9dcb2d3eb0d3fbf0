// NewestRoad: a road over a database that grows while it is trained on. It is opened anew for a training pass where
// something was committed since, so that new nodes and edges become training examples of the next epoch; validation and
// test are those of the road that is open.
//
// Batches are functions of (seed, pass) and of what the database had when the pass began. So a run that goes on from its
// checkpoint trains on what there is then, as one that was never interrupted would.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "quarry/base/status.h"
#include "quarry/pipeline/batch_stream.h"

namespace quarry {

// One thread at a time.
class NewestRoad final : public Road {
 public:
  // A road, and the timestamp up to which it sees what was committed.
  struct Opened {
    std::unique_ptr<Road> road;
    uint64_t timestamp = 0;
  };
  struct Source {
    std::function<Result<uint64_t>()> newest;  // the timestamp of the last commit
    std::function<Result<Opened>()>
        open;  // of what is committed when it is called; called while no other road is open
  };

  // Opens the first road.
  static Result<std::unique_ptr<NewestRoad>> Make(Source source);

  // For the train split: the errors of the source; kInvalidArgument where labels came of a class that the first road did not
  // have, or rows of other columns. The road is of no more use then.
  Result<std::unique_ptr<BatchStream>> StartSplit(Split split, PassOptions options) override;
  // These are the open road's.
  Result<std::unique_ptr<BatchStream>> StartPass(PassOptions options) override {
    return opened_.road->StartPass(std::move(options));
  }
  std::span<const int64_t> labels() const override { return opened_.road->labels(); }
  std::vector<NodeId> SplitNodes(Split split) const override { return opened_.road->SplitNodes(split); }
  uint64_t CountNodes(Split split) const override { return opened_.road->CountNodes(split); }
  bool Serves(Split split) const override { return opened_.road->Serves(split); }
  uint32_t class_count() const override {
    return class_count_;
  }  // of the first road: what a model was made for
  uint32_t feature_dim() const override { return feature_dim_; }

  uint64_t timestamp() const { return opened_.timestamp; }

 private:
  explicit NewestRoad(Source source) : source_(std::move(source)) {}
  Status Renew();

  const Source source_;
  Opened opened_;
  uint32_t class_count_ = 0, feature_dim_ = 0;
};

}  // namespace quarry
