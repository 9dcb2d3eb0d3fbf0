#include "quarry/pipeline/newest_road.h"

#include "quarry/base/log.h"

namespace quarry {

Result<std::unique_ptr<NewestRoad>> NewestRoad::Make(Source source) {
  std::unique_ptr<NewestRoad> road(new NewestRoad(std::move(source)));
  QUARRY_TRY(road->opened_, road->source_.open());
  road->class_count_ = road->opened_.road->class_count();
  road->feature_dim_ = road->opened_.road->feature_dim();
  return road;
}

// The old road goes first: both together may not fit.
Status NewestRoad::Renew() {
  QUARRY_TRY(const uint64_t newest, source_.newest());
  if (newest <= opened_.timestamp) return Status::Ok();
  const uint64_t nodes_before = opened_.road->CountNodes(Split::kTrain);
  opened_.road.reset();
  QUARRY_TRY(opened_, source_.open());
  const Road& road = *opened_.road;
  if (road.class_count() > class_count_ || road.feature_dim() != feature_dim_) {
    return MakeStatus(
        Code::kInvalidArgument,
        "as of {} the database has labels of {} classes and rows of {} columns, and the model was made for "
        "{} and {}: begin another run",
        opened_.timestamp, road.class_count(), road.feature_dim(), class_count_, feature_dim_);
  }
  LogInfo("training on what the database has as of {}: {} training nodes, {} before", opened_.timestamp,
          road.CountNodes(Split::kTrain), nodes_before);
  return Status::Ok();
}

Result<std::unique_ptr<BatchStream>> NewestRoad::StartSplit(Split split, PassOptions options) {
  if (split == Split::kTrain) QUARRY_RETURN_IF_ERROR(Renew());
  return opened_.road->StartSplit(split, std::move(options));
}

}  // namespace quarry
