// MetricsHttp: what the server does, for people and for Prometheus, over HTTP: on a Unix socket, on
// 127.0.0.1, or on both.
//
//   /metrics      Prometheus text 0.0.4
//   /             a page that shows /status.json, and refreshes itself each second
//   /status.json  wire::ToJson
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

#include "quarry/base/status.h"
#include "quarry/format/wire_status.h"
#include "quarry/service/metrics.h"

namespace quarry {

class MetricsHttp {
 public:
  struct Places {
    std::optional<uint16_t> port;  // on 127.0.0.1; 0: any free one
    int listener = -1;             // a Unix socket that listens, owned from here on; -1: none
    std::vector<uid_t> users;      // who may ask there
  };
  // `metrics` outlive it; `status` is called from its thread until its end, and must not wait for long.
  // kAlreadyExists when the port is taken.
  static Result<std::unique_ptr<MetricsHttp>> Start(const Metrics& metrics,
                                                    std::function<wire::ServerStatus()> status,
                                                    const Places& places);
  // Closes all connections and joins its thread.
  virtual ~MetricsHttp() = default;
  virtual uint16_t port() const = 0;  // 0 without one
};

}  // namespace quarry
