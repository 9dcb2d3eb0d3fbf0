// Session::Streams: the streams that a client has open, which the hub produces.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>

#include "session_bulk.h"

namespace quarry {

class Session::Streams final : Part {
 public:
  explicit Streams(Session& session) : Part(session) {}
  void On(uint64_t id, const wire::OpenStream& request);
  void On(uint64_t id, const wire::StartPass& request);
  void On(uint64_t id, const wire::NextBatch& request);
  void On(uint64_t id, const wire::CloseStream& request);
  void On(uint64_t id, const wire::Stats& request);
  void End() { open_.clear(); }

 private:
  // Where a stream's batches lie.
  struct Region {
    uint32_t id = 0;  // 0: the client has not mapped it
    std::shared_ptr<SharedRegion> region;
  };
  void Opened(uint64_t id, const Result<OpenedStream>& opened);
  void GiveBatch(uint64_t id, uint64_t stream, const Result<std::optional<StreamBatch>>& result);

  std::map<uint64_t, Region> open_;
};

}  // namespace quarry
