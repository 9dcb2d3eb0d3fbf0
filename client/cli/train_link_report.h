// What `quarry train --task link` prints: a table for people, or one JSON object a line (docs/cli.md, "Link
// prediction").
#pragma once

#include "quarry/base/budget.h"
#include "quarry/trainer/link_train.h"

namespace quarry::cli {

class LinkReport {
 public:
  // Both outlive the report.
  LinkReport(const LinkTrainOptions& train, const MemoryBudget& budget, bool json)
      : train_(train), budget_(budget), json_(json) {}
  void Epoch(const LinkEpochReport& epoch);
  void Summary(const LinkTrainSummary& summary);

 private:
  const LinkTrainOptions& train_;
  const MemoryBudget& budget_;
  const bool json_;
  bool header_printed_ = false;
  uint64_t reserved_bytes_ = 0;  // while training; the summary comes after
};

}  // namespace quarry::cli
