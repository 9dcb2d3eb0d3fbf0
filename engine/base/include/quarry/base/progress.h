// How long work tells how far it is, and is stopped.
#pragma once

#include <cstdint>
#include <functional>
#include <string_view>

#include "quarry/base/status.h"

namespace quarry {

// Called now and then with the bytes or items done and in all (total 0 = unknown). What it returns other than
// OK stops the operation, which undoes itself and returns that status: this is how Ctrl-C becomes kCancelled.
// May be empty.
using ProgressFunction = std::function<Status(std::string_view phase, uint64_t done, uint64_t total)>;

}  // namespace quarry
