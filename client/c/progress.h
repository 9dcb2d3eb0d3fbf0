// How a caller's progress function of C becomes the engine's. Private to the C interface.
#pragma once

#include <string>
#include <string_view>

#include "quarry/base/progress.h"
#include "quarry/client/c_admin.h"

namespace quarry::client {

inline ProgressFunction ProgressOf(quarry_progress progress, void* context) {
  if (progress == nullptr) return {};
  return [progress, context](std::string_view phase, uint64_t done, uint64_t total) {
    if (progress(context, std::string(phase).c_str(), done, total) == 0) return Status();
    return Status(Code::kCancelled, "the caller's progress function ended it");
  };
}

}  // namespace quarry::client
