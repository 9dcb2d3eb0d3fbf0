// Metrics: what the server counts, for Prometheus, the status page, `quarry top` and the `stats` request.
//
// Counters and histograms are made once, by name, and are then lock-free to add to. Gauges are functions,
// asked when somebody looks: by any thread, with no lock of the metrics held.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "quarry/format/wire_responses.h"

namespace quarry {

class Counter {
 public:
  void Add(uint64_t n = 1) { value_.fetch_add(n, std::memory_order_relaxed); }
  uint64_t value() const { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<uint64_t> value_{0};
};

// Seconds, in buckets that are a quarter of an octave wide, from 1 us to 1,000 s. Bucket i holds what is
// below 2^((i + 1) / 4) us; the first also what is less than 1 us, the last also what is more than they
// reach. So a quantile is right to 10 % over the whole range, in a kilobyte.
class Histogram {
 public:
  static constexpr size_t kBuckets = 120;
  using Counts = std::array<uint64_t, kBuckets>;

  void Add(double seconds);
  Counts counts() const;
  uint64_t count() const;
  double sum() const;
  // Within 10 % of a sample that is at least as large as the share `q` of them; 0 when nothing was added.
  double Quantile(double q) const;
  static double UpperBound(size_t bucket);

 private:
  std::array<std::atomic<uint64_t>, kBuckets> buckets_{};
  std::atomic<uint64_t> nanoseconds_{0};
};

// Thread-safe.
class Metrics {
 public:
  Metrics();
  ~Metrics();
  Metrics(const Metrics&) = delete;
  Metrics& operator=(const Metrics&) = delete;

  // `name` as Prometheus has names; `labels` as in {kind="lookup"}, or empty; `help` one sentence. Valid as
  // long as the metrics are; the same name and labels give the same one. REQUIRES: a name is of one kind.
  Counter& AddCounter(const std::string& name, const std::string& labels, const std::string& help);
  Histogram& AddHistogram(const std::string& name, const std::string& labels, const std::string& help);
  // REQUIRES: there is none of this name and labels.
  void AddGauge(const std::string& name, const std::string& labels, const std::string& help,
                std::function<double()> value);

  std::string Prometheus() const;  // text exposition format 0.0.4; histograms with a bucket an octave
  // The values of labels follow the name: requests_total_lookup. Histograms as NAME_p50, NAME_p99,
  // NAME_count; a gauge that is no number is left out.
  std::vector<wire::Counter> Counters() const;

 private:
  struct Registry;
  const std::unique_ptr<Registry> registry_;
};

}  // namespace quarry
