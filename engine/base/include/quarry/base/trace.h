// Records where the time goes, as spans of this process's threads, for a file that Perfetto (ui.perfetto.dev)
// and chrome://tracing show.
//
//   ScopedSpan span("extract", batch);   from here to the end of the scope
//
// There is one recorder for the whole process, since spans lie in every room. When nobody records, a span
// must cost next to nothing: one relaxed load. While it records, a span costs two looks at the clock and an
// uncontended lock (0.3 us). Memory is bounded: 32 bytes a span, kTraceSpansMax of them; those that come
// later are counted and dropped, since how a run begins is what one looks for. Waits have spans where the
// consumer waits; a stage that waits for a queue shows as a gap.
//
// All functions are thread-safe.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <string_view>

#include "quarry/base/status.h"

namespace quarry {

inline constexpr uint64_t kTraceSpansMax = 1 << 20;

// Names the calling thread, in the trace and for the system (which takes 15 characters). A thread that ends
// leaves its line in the trace to the next one of its name: so stages that start threads for every pass have
// only as many lines as threads that run at the same time.
void NameThread(std::string_view name);

// From now on spans are recorded; what was recorded before is forgotten.
void StartTrace(uint64_t spans_max = kTraceSpansMax);
void StopTrace();

struct TraceReport {
  uint64_t spans = 0;
  uint64_t dropped = 0;  // spans for which there was no room
  uint32_t threads = 0;
};

// Writes what has been recorded to `fd` as Chrome's JSON (complete events, times in microseconds since
// StartTrace). `path` is for errors: kIoError, kNoSpace.
Result<TraceReport> WriteTrace(int fd, std::string_view path);

namespace trace_internal {
extern std::atomic<bool> recording;
uint64_t Now();
void Record(const char* name, uint64_t number, uint64_t start_ns);
}  // namespace trace_internal

// A span of the calling thread, from construction to destruction. Spans of one thread nest.
class ScopedSpan {
 public:
  static constexpr uint64_t kNoNumber = ~uint64_t{0};

  // `name` is a literal, or other text that lives as long as the process. `number` tells batches or requests
  // apart.
  explicit ScopedSpan(const char* name, uint64_t number = kNoNumber)
      : name_(trace_internal::recording.load(std::memory_order_relaxed) ? name : nullptr), number_(number) {
    if (name_ != nullptr) start_ns_ = trace_internal::Now();
  }
  ~ScopedSpan() {
    if (name_ != nullptr) trace_internal::Record(name_, number_, start_ns_);
  }
  ScopedSpan(const ScopedSpan&) = delete;
  ScopedSpan& operator=(const ScopedSpan&) = delete;

 private:
  const char* const name_;
  const uint64_t number_;
  uint64_t start_ns_ = 0;
};

// Does `work` in a span.
template <typename Work>
auto InSpan(const char* name, uint64_t number, const Work& work) {
  const ScopedSpan span(name, number);
  return work();
}

}  // namespace quarry
