// RequestMetrics: how many requests of each kind there were, how many failed, and how long they took.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "quarry/format/wire_requests.h"
#include "quarry/service/metrics.h"

namespace quarry {

class RequestMetrics {
 public:
  explicit RequestMetrics(Metrics& metrics);
  // `kind`: the alternative of wire::Request. Thread-safe.
  void Add(size_t kind, double seconds, bool ok);

  // Totals of all sessions.
  Counter& bytes_received;
  Counter& bytes_sent;
  Counter& shared_bytes;  // answers that were put into shared memory

  Counter& lookup_rows;
  Counter& commits_accepted;  // commits of embeddings
  Counter& commits_stale;

  static std::string_view KindName(size_t kind);  // "lookup"

 private:
  struct Kind {
    Counter& requests;
    Counter& failures;
    Histogram& seconds;
  };
  std::vector<Kind> kinds_;
};

}  // namespace quarry
