// What the engine has, in the plain values of the protocol: for sessions, and for the embedded store of the
// client library.
#pragma once

#include "quarry/format/manifest.h"
#include "quarry/format/wire_responses.h"
#include "quarry/pipeline/batch_stream.h"

namespace quarry {

wire::Description DescriptionOf(const Manifest& manifest);
wire::Counters CountersOf(const StreamStats& stats);

}  // namespace quarry
