// What a server does at one moment: its counters, its sessions and its streams. The answer to GetStatus, and
// what the status page and `quarry top` show.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace quarry::wire {

struct Counter {
  std::string name;
  double value = 0;
  bool operator==(const Counter&) const = default;
};

struct SessionStatus {
  uint64_t id = 0;
  uint32_t pid = 0, uid = 0;                  // of the client
  double seconds = 0;                         // since it connected
  uint64_t budget_bytes = 0, used_bytes = 0;  // granted, and reserved of that
  uint64_t outstanding = 0, leases = 0;       // requests without an answer; leases held
  uint64_t bytes_sent = 0, shared_bytes = 0;  // through the socket; put into shared memory for it
  uint64_t requests = 0;                      // so far
  bool operator==(const SessionStatus&) const = default;
};

struct StreamStatus {
  uint64_t id = 0, session = 0;
  std::string road, group;          // "live", "planned", "superbatch"; empty group when exclusive
  uint64_t batches = 0, bytes = 0;  // delivered
  uint32_t held = 0, waiting = 0;   // batches leased; requests for one without an answer
  uint32_t slots = 0;               // batches that may be leased at a time
  uint64_t read_bytes = 0;          // of the pass, and so are the following
  uint64_t cache_lookups = 0, cache_hits = 0;
  double consumer_wait_seconds = 0;
  bool operator==(const StreamStatus&) const = default;
};

struct ServerStatus {
  std::vector<Counter> counters;
  std::vector<SessionStatus> sessions;
  std::vector<StreamStatus> streams;
  // Those for which a message has no room (kListedMax).
  uint64_t sessions_left_out = 0, streams_left_out = 0;
  bool operator==(const ServerStatus&) const = default;
};

// Takes sessions and streams away until a message can list the rest, and counts them.
void LeaveOutWhatFindsNoRoom(ServerStatus& status);

// {"counters": {name: value}, "sessions": [...], "streams": [...], "sessions_left_out": 0,
// "streams_left_out": 0}. Numbers that are not finite are null.
std::string ToJson(const ServerStatus& status);

}  // namespace quarry::wire
