// In what a member's request differs from that of the group which it joins (docs/protocol.md, "Streams for
// several clients"). Pure.
#pragma once

#include <string>

#include "quarry/format/wire_requests.h"

namespace quarry {

// "batch size 32, the group has 64"; empty when they are equal. Snapshots and the group's name aside.
std::string Difference(const wire::OpenStream& asked, const wire::OpenStream& group);
// Streams aside.
std::string Difference(const wire::StartPass& asked, const wire::StartPass& group);

}  // namespace quarry
