// FixedRows: rows of features as the embedding pipeline takes tables: they come with each batch that names their nodes, and
// stay as they are. What is written are timestamps alone, by which the pipeline tells what it has.
#pragma once

#include <atomic>
#include <cstdint>
#include <span>
#include <vector>

#include "quarry/base/status.h"
#include "quarry/embedding/embedding_table.h"
#include "quarry/trainer/link_train.h"

namespace quarry {

class FixedRows final : public EmbeddingTable {
 public:
  // Holds 8 bytes a row. `rows` ([row_count, dim]) outlive it. REQUIRES: a spec without state, of float32.
  FixedRows(const EmbeddingSpec& spec, std::span<const float> rows);

  const EmbeddingSpec& spec() const override { return spec_; }
  Status Read(RowBlock& block) override;
  Status Write(const RowBlock& block) override;
  Status Prefetch(std::span<const RowId> /*ids*/) override { return Status::Ok(); }

 private:
  Status CheckIds(std::span<const RowId> ids) const;

  const EmbeddingSpec spec_;
  const std::span<const float> rows_;
  std::vector<std::atomic<int64_t>> timestamps_;  // by row
};

// kInvalidArgument for data that has not `feature_dim` numbers for each node.
Status CheckFeatures(const LinkData& data, const LinkTrainOptions& options);

}  // namespace quarry
