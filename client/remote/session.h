// Session: an open session of a server: its connection, what was agreed, and the memory that both share.
// Private to this library.
//
// Thread-safe. Lives as long as something that was leased in it.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "connection.h"
#include "memory_map.h"
#include "quarry/format/wire.h"
#include "upload_region.h"

namespace quarry::client {

struct SessionOptions {
  ServerPlace place;
  std::array<std::byte, 16> client_id{};
  uint64_t budget_bytes = 0;  // 0: a quarter of the server's
  uint64_t budget_bytes_min = 0;
  double wait_seconds = 0;
  bool inline_only = false;
};

// Bytes that came with an answer. The lease, if they are leased, ends with the last owner.
struct Brought {
  std::span<const std::byte> bytes;
  std::span<const std::byte> outside;  // the rows of a batch, where they lie apart
  std::shared_ptr<const void> owner;
};

class Session : public std::enable_shared_from_this<Session> {
 public:
  static Result<std::shared_ptr<Session>> Open(const SessionOptions& options, Deadline deadline);

  Connection& connection() { return *connection_; }
  bool lost() const { return connection_->lost(); }
  const std::string& path() const { return options_.place.path; }
  const std::array<std::byte, 16>& server_id() const { return server_id_; }
  const wire::ServerLimits& limits() const { return limits_; }
  // kUnsupported for a server that knows no trainings and edges.
  Status CheckTrainings() const;
  // kUnsupported for a server that would draw otherwise.
  Status CheckSampler(const RoadSpec& spec) const;
  Status CheckSample(const wire::Sample& sample) const;
  Status CheckEdgeLists() const;  // that it says which list edges are of
  Status CheckParts() const;      // that batches of parts have the database's ids
  bool has_put_pieces() const { return (capabilities_ & wire::kPutPieces) != 0; }
  bool has_put_graph() const { return has_put_pieces() && (capabilities_ & wire::kPutGraph) != 0; }
  bool has_node_removal() const { return (capabilities_ & wire::kRemoveNodes) != 0; }
  bool has_relations() const { return (capabilities_ & wire::kRelations) != 0; }
  bool has_typed_nodes() const { return (capabilities_ & wire::kTypedNodes) != 0; }
  bool has_ranks() const { return (capabilities_ & wire::kRanks) != 0; }
  bool has_maintenance() const { return (capabilities_ & wire::kMaintenance) != 0; }
  uint64_t budget_bytes() const { return budget_bytes_; }  // granted
  bool has_sql() const { return (capabilities_ & wire::kSql) != 0; }
  uint64_t upload_bytes_max() const { return upload_ == nullptr ? 0 : upload_->size(); }

  // What the server answers; a Failure, too. Errors are of the connection, or of the request.
  Result<Connection::Answer> Call(const wire::Request& request, Deadline deadline,
                                  std::shared_ptr<const void> holds = {});

  // Memory of the region that the server reads; null without one, or when none is free in time. REQUIRES: 0 <
  // bytes <= upload_bytes_max().
  std::shared_ptr<UploadRegion::Slice> Upload(uint64_t bytes, Deadline deadline);
  wire::Range RangeOf(const UploadRegion::Slice& slice, uint64_t begin, uint64_t bytes) const;

  // Maps what was announced. kCorruption for regions that are not what they should be.
  Status AddRegions(std::span<const wire::Region> regions, std::span<const UniqueFd> fds);
  void DropRegions(std::span<const wire::Region> regions);

  // kCorruption for an answer that is larger than the session's memory: a claim takes none here either.
  Status CheckSize(uint64_t bytes) const;
  // In place. `release_at_once`: somebody waits for the room. kCorruption when the bytes lie nowhere.
  Result<Brought> Take(wire::Payload payload, const std::optional<wire::Range>& rows, bool release_at_once,
                       Deadline deadline);
  // Once, in a vector: what may be as large as the session's memory.
  Result<std::vector<std::byte>> TakeWhole(wire::Payload payload, Deadline deadline);
  // Memory of the caller's, at a multiple of wire::kBatchAlignment where it was leased: answers share a
  // region of a few, and who keeps one would keep the next from coming.
  Result<Brought> TakeCopy(wire::Payload payload, Deadline deadline);

 private:
  explicit Session(const SessionOptions& options) : options_(options) {}
  Status Greet(Deadline deadline);
  Status OpenAs(Deadline deadline);
  Status CheckTypedDraws(std::string_view asked) const;
  Result<std::shared_ptr<MemoryMap>> MapOf(const wire::Range& range);
  Result<Brought> Read(const wire::Lease& lease, Deadline deadline);
  Status ReadChunks(const wire::Lease& lease, Deadline deadline,
                    const std::function<void(std::span<const std::byte> chunk)>& take);

  const SessionOptions options_;
  std::unique_ptr<Connection> connection_;
  std::array<std::byte, 16> server_id_{};
  wire::ServerLimits limits_;
  uint64_t capabilities_ = 0;  // agreed
  uint64_t budget_bytes_ = 0;
  std::shared_ptr<UploadRegion> upload_;  // null: everything goes in messages

  Mutex mutex_;
  std::map<uint32_t, std::shared_ptr<MemoryMap>> regions_ QUARRY_GUARDED_BY(mutex_);
};

// The bytes in memory of their own, at a multiple of wire::kBatchAlignment.
Result<Brought> CopyOf(const Brought& brought, const std::string& path);

// The T that was asked for, or the failure that the server answered; kCorruption for another kind of answer.
template <typename T>
Result<T> Expect(wire::Response& response, const std::string& path) {
  if (auto* value = std::get_if<T>(&response)) return std::move(*value);
  if (const auto* failure = std::get_if<wire::Failure>(&response)) return wire::ToStatus(*failure);
  return MakeStatus(Code::kCorruption, "{}: the server answered something else than what it was asked", path);
}

}  // namespace quarry::client
