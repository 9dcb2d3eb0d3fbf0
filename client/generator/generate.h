// Synthetic graphs to try Quarry on: power-law degrees, planted communities, and features that are noisy
// hints of a node's class, so that a GNN, which averages neighbors, learns the labels well and a network on
// the features alone does not.
//
// Every value is a pure function of (options, position), computed with integers and IEEE basic operations
// only: the same options give the same bytes on every machine and for any number of threads (invariant 6),
// and a graph of 50 M nodes needs no more memory than one of a thousand.
#pragma once

#include <cstdint>
#include <string>

#include "quarry/base/progress.h"
#include "quarry/base/status.h"
#include "quarry/format/element_type.h"
#include "quarry/io/backend.h"

namespace quarry {

struct GenerateOptions {
  uint64_t node_count = 1'000'000;
  double degree = 15;         // mean; the edge count is node_count x degree, rounded
  uint64_t dim = 128;         // features per node
  uint64_t class_count = 50;  // communities of equal size
  double exponent = 2.1;      // P(in-degree = k) ~ k^-exponent in the tail; out-degree has exponent + 1
  double homophily = 0.7;     // probability that an edge's ends have the same class
  double noise = 1.0;         // standard deviation of a feature around its class's centroid
  uint64_t seed = 1;
  ElementType element_type = ElementType::kFloat32;  // or kFloat16
  double train_share = 0.01;
  double valid_share = 0.005;
  double test_share = 0.005;
};

struct GenerateSummary {
  uint64_t edge_count = 0;
  uint64_t bytes = 0;  // written
};

// Writes the folder `path` that `quarry import` takes as it is: edges.npy (int64 [2, E], unsorted),
// features.npy, labels.npy, train_idx.npy, valid_idx.npy, test_idx.npy, metadata.yaml. Built in
// `<path>.generating`, synced, then renamed, so that `path` appears whole or not at all.
//
// Uses `threads` threads (at least 1; the calling one is among them, and alone calls `progress`) and about
// 4 MiB for each, plus 4 bytes for each node of the largest split.
//
// kUsage names an option out of range; kAlreadyExists when `path` exists; kBusy while another process
// generates it; kNoSpace when the disk lacks room (checked first); kCancelled when `progress` says so.
Result<GenerateSummary> Generate(IoBackend& backend, const std::string& path, const GenerateOptions& options,
                                 unsigned threads, const ProgressFunction& progress);

}  // namespace quarry
