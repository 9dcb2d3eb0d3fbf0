// What the engine has, in the plain values of the protocol: for sessions, and for the embedded store of the
// client library.
#pragma once

#include "quarry/format/wire_responses.h"
#include "quarry/pipeline/batch_stream.h"
#include "quarry/storage/store.h"

namespace quarry {

wire::Description DescriptionOf(const Store& store);
wire::Counters CountersOf(const StreamStats& stats);

}  // namespace quarry
