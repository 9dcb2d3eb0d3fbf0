// What push and pull say when they are done.
#pragma once

#include <string>

#include "quarry/objects/push.h"

namespace quarry::cli {

// `moved`: "sent" or "fetched".
void PrintTransfer(const std::string& path, const TransferReport& report, const char* moved, bool json);

}  // namespace quarry::cli
