// MetricsHttp: what the server does, for people and for Prometheus, over HTTP: on a Unix socket, on
// 127.0.0.1, or on both.
//
//   /metrics      Prometheus text 0.0.4
//   /             a page that shows /status.json, and refreshes itself each second
//   /status.json  StatusJson
//
// Anything else is 404, any method but GET and HEAD 405. It has a thread and an event loop of its own, so
// that neither a slow reader nor a long page takes time from sessions; when there are as many connections as
// there may be, the one that has been waited for the longest makes room. On the Unix socket the peer's user
// is asked of the kernel. Whoever may connect to the port may read: users of the machine, whatever their uid,
// but no page of another site, since the Host that a browser names has to be this machine.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "metrics.h"
#include "quarry/base/status.h"
#include "quarry/format/wire_responses.h"
#include "stream_hub.h"

namespace quarry {

// A session as the status page shows it.
struct SessionStatus {
  SessionId id = 0;
  pid_t pid = 0;  // the peer's
  uid_t uid = 0;
  double seconds = 0;                         // since it connected
  uint64_t budget_bytes = 0, used_bytes = 0;  // granted, and reserved of that
  uint64_t outstanding = 0, leases = 0;       // requests without an answer; leases held
  uint64_t bytes_sent = 0, shared_bytes = 0;  // through the socket; put into shared memory for it
  uint64_t requests = 0;                      // so far
};

// Where the figures come from. The functions are called from any thread, at any time between Start and the
// end of MetricsHttp, and must not wait for long.
struct StatusSource {
  const Metrics* metrics = nullptr;
  std::function<std::vector<SessionStatus>()> sessions;
  std::function<std::vector<StreamHub::StreamState>()> streams;  // StreamHub::States
};

// What the `stats` request answers, and `quarry top` shows: Metrics::Counters, then session_ID_FIELD and
// stream_ID_FIELD for as many sessions and streams as a message may list counters (wire::kListedMax).
std::vector<wire::Counter> StatusCounters(const StatusSource& source);

// {"counters": {name: value}, "sessions": [...], "streams": [...]}
std::string StatusJson(const StatusSource& source);

class MetricsHttp {
 public:
  struct Places {
    std::optional<uint16_t> port;  // on 127.0.0.1; 0: any free one
    int listener = -1;             // a Unix socket that listens, owned from here on; -1: none
    std::vector<uid_t> users;      // who may ask there
  };
  // kAlreadyExists when the port is taken.
  static Result<std::unique_ptr<MetricsHttp>> Start(StatusSource source, const Places& places);
  // Closes all connections and joins its thread.
  virtual ~MetricsHttp() = default;
  virtual uint16_t port() const = 0;  // 0 without one
};

}  // namespace quarry
