// What a store refuses in the same words, whether it is embedded or remote. Private to the client libraries.
#pragma once

#include <cstdint>
#include <string_view>

#include "quarry/base/status.h"

namespace quarry::client {

inline Status NoSnapshot(uint64_t id) {
  return MakeStatus(Code::kUsage, "there is no snapshot {}: its owner has let it go", id);
}

// Ids and rows are given in memory: ranges name memory that client and server share.
inline Status NotInMemory(std::string_view what) {
  return MakeStatus(Code::kInvalidArgument, "{} are given as a range of shared memory; give them in a vector",
                    what);
}

inline Status ForeignRows(std::string_view table) {
  return MakeStatus(Code::kInvalidArgument,
                    "embedding table \"{}\": the rows to commit were not read from a store", table);
}

inline Status NoPass() { return MakeStatus(Code::kUsage, "no pass was started on this stream"); }

inline Status BatchesHeld(uint32_t held, uint32_t slots) {
  return MakeStatus(Code::kUsage, "{} batches of the stream are held; it has {} slots: let one go first",
                    held, slots);
}

inline Status BatchesHeldAtStart(uint32_t held) {
  return MakeStatus(Code::kUsage, "{} batches of the last pass are held: let them go before the next begins",
                    held);
}

}  // namespace quarry::client
