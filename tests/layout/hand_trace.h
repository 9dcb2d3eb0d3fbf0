// Traces of chosen batches.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "bits.h"
#include "quarry/base/random.h"
#include "quarry/layout/trace.h"
#include "record_file.h"
#include "support/status_matchers.h"
#include "support/temporary_folder.h"
#include "support/unsynced_backend.h"

namespace quarry::testing_util {

using Batches = std::vector<std::vector<NodeId>>;

// A trace whose batches have these nodes (unique within a batch), each in one hop group.
class HandTrace {
 public:
  explicit HandTrace(Batches batches) : folder_("trace"), batches_(std::move(batches)) {
    for (std::vector<NodeId>& nodes : batches_) std::ranges::sort(nodes);
    Write();
  }
  const Batches& batches() const { return batches_; }
  const Trace& trace() const { return *trace_; }
  IoBackend& backend() const { return *backend_; }
  std::string ScratchPath() const { return folder_ / "scratch"; }
  // How many files there are besides the trace.
  size_t StrayFiles() const {
    size_t files = 0;
    for (const auto& entry : std::filesystem::directory_iterator(folder_.path())) {
      files += entry.path().filename() != "trace.qlt";
    }
    return files;
  }

 private:
  void Write() {
    constexpr DatabaseId kId{};
    ASSERT_OK_AND_ASSIGN(auto writer, RecordWriter::Create(*backend_, folder_ / "trace.qlt"));
    for (const std::vector<NodeId>& nodes : batches_) {
      std::vector<std::byte> bytes;
      ByteWriter encoded(bytes);
      encoded.U32(1);
      encoded.U32(static_cast<uint32_t>(nodes.size()));
      encoded.Ascending(nodes);
      ASSERT_OK(writer->Append({bytes}));
    }
    ASSERT_OK_AND_ASSIGN(const auto file_bytes, writer->Finish(kId, 1));
    ASSERT_OK_AND_ASSIGN(auto trace, Trace::Open(*backend_, folder_ / "trace.qlt", kId, 1, file_bytes));
    trace_ = std::move(trace);
  }

  const TemporaryFolder folder_;
  const std::unique_ptr<IoBackend> backend_ = std::make_unique<UnsyncedBackend>();
  Batches batches_;
  std::unique_ptr<Trace> trace_;
};

// Some nodes are used far more often than others: half of the draws fall on a tenth of the nodes.
inline Batches RandomBatches(uint64_t seed, uint64_t batch_count, uint64_t node_count, uint64_t draws) {
  Rng rng(seed);
  Batches batches;
  for (uint64_t b = 0; b < batch_count; ++b) {
    std::set<NodeId> nodes;
    for (uint64_t i = 0; i < draws; ++i) {
      nodes.insert(static_cast<NodeId>(rng.Below(rng.Below(2) == 0 ? node_count / 10 : node_count)));
    }
    batches.emplace_back(nodes.begin(), nodes.end());
  }
  return batches;
}

}  // namespace quarry::testing_util
