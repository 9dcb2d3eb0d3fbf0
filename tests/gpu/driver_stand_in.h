// What stands in for libcuda.so.1: a shared library (driver_stand_in.cc) with the driver's names, over host memory. Work
// is done at once. It holds callers to the driver's rules: a context is current where one must be, handles are alive,
// arguments make sense; what does not hold is an error as the driver would give, and stays in `broken`.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "quarry/gpu/kernel.h"

namespace quarry::testing_util {

// The kernel that the stand-in runs.
struct AddIndices {
  static constexpr char kName[] = "quarry_add_indices";
  const uint32_t* from;
  uint32_t* to;
  uint64_t numbers;

  uint64_t count() const { return numbers; }
  void operator()(uint64_t i) const { to[i] = from[i] + static_cast<uint32_t>(i); }
};

struct DriverStandIn {
  // Set by tests.
  int device_count = 2;
  uint64_t memory_bytes = uint64_t{1} << 20;
  bool events_happen = true;         // false: whoever asks is told "not yet"
  std::map<std::string, int> fails;  // function -> error, whatever it is asked

  std::vector<std::string> calls;   // without the pushes and pops of contexts
  std::vector<std::string> broken;  // rules, in words
  std::map<int, int> retained;      // primary contexts: device -> how often
  std::map<const std::byte*, uint64_t> memory, pinned;
  std::set<void*> streams, events, modules;
  uint64_t used_bytes = 0;
  unsigned blocks = 0, threads = 0;  // of the last launch
  unsigned pin_flags = 0, stream_flags = 0, event_flags = 0;
};

// Exported as "quarry_stand_in"; how many contexts are current on this thread, as "quarry_contexts"; "quarry_push" makes
// the context of another library current.
using StandInFunction = DriverStandIn* (*)();
using ContextsFunction = size_t (*)();
using PushFunction = void (*)(void* context);

}  // namespace quarry::testing_util
