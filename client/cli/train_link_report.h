// What `quarry train --task link` prints: a table for people, or one JSON object a line (docs/cli.md, "Link
// prediction").
#pragma once

#include <optional>
#include <string>
#include <utility>

#include "quarry/base/budget.h"
#include "quarry/trainer/link_run.h"
#include "quarry/trainer/link_train.h"

namespace quarry::cli {

class LinkReport {
 public:
  // All outlive the report; `run` is null where vectors are in memory, without checkpoints. `config`: what
  // the training was started with.
  LinkReport(const LinkTrainOptions& train, const MemoryBudget& budget, const LinkRun* run,
             std::string config, bool json)
      : train_(train), budget_(budget), run_(run), config_(std::move(config)), json_(json) {
    if (run != nullptr && run->timestamp() != kNeverWritten) start_ = run->place();
  }
  void Epoch(const LinkEpochReport& epoch);
  void Summary(const LinkTrainSummary& summary);

 private:
  const LinkTrainOptions& train_;
  const MemoryBudget& budget_;
  const LinkRun* const run_;
  const std::string config_;
  std::optional<LinkPlace> start_;  // where a resumed run began
  const bool json_;
  bool header_printed_ = false;
  uint64_t reserved_bytes_ = 0;  // while training; the summary comes after
};

}  // namespace quarry::cli
