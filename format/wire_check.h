// What a request or an answer must be, beyond being decodable: before it is sent and after it arrived.
// Private to this room.
#pragma once

#include "quarry/format/wire.h"

namespace quarry::wire {

// kInvalidArgument says what is wrong with which field.
Status Check(const Request& request, const Limits& limits);
Status Check(const Response& response, const Limits& limits);

// Parts of requests.
Status CheckRoad(const RoadSpec& spec);
Status CheckTask(const MaintenanceTask& task);

// Descriptors that come with the frame of an answer: one for each region.
uint32_t FdsOf(const Response& response);

}  // namespace quarry::wire
