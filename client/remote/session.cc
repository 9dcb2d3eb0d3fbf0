#include "session.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "quarry/base/process.h"
#include "quarry/base/units.h"
#include "quarry/format/wire_batch.h"

namespace quarry::client {
namespace {

// Returned to the server by the last who holds it.
class LeaseGuard {
 public:
  LeaseGuard(std::shared_ptr<Session> session, uint64_t lease, bool at_once)
      : session_(std::move(session)), lease_(lease), at_once_(at_once) {}
  ~LeaseGuard() { session_->connection().Release(lease_, at_once_); }
  LeaseGuard(const LeaseGuard&) = delete;
  LeaseGuard& operator=(const LeaseGuard&) = delete;
  void Keep(std::shared_ptr<MemoryMap> memory) { memory_.push_back(std::move(memory)); }

 private:
  const std::shared_ptr<Session> session_;
  const uint64_t lease_;
  const bool at_once_;
  std::vector<std::shared_ptr<MemoryMap>> memory_;
};

std::span<const std::byte> BytesOf(const MemoryMap& memory, const wire::Range& range) {
  return memory.bytes().subspan(range.offset, range.bytes);
}

}  // namespace

Result<std::shared_ptr<Session>> Session::Open(const SessionOptions& options, Deadline deadline) {
  std::shared_ptr<Session> session(new Session(options));
  QUARRY_TRY(session->connection_, Connection::Open(options.place));
  QUARRY_RETURN_IF_ERROR(session->Greet(deadline));
  QUARRY_RETURN_IF_ERROR(session->OpenAs(deadline));
  return session;
}

Status Session::Greet(Deadline deadline) {
  const uint64_t ways = options_.inline_only ? wire::kInline : wire::kSharedMemory | wire::kInline;
  QUARRY_TRY(Connection::Answer answer,
             Call(wire::Hello{.capabilities = ways | wire::kSql | wire::kOfThisVersion}, deadline));
  QUARRY_TRY(const wire::Welcome welcome, Expect<wire::Welcome>(answer.response, path()));
  if (welcome.version != wire::kProtocolVersion) {
    return MakeStatus(Code::kUnsupported, "{}: the server speaks version {} of the protocol; this client {}",
                      path(), welcome.version, wire::kProtocolVersion);
  }
  if ((welcome.capabilities & ways) == 0) {
    return MakeStatus(Code::kUnsupported, "{}: the server gives bulk data in no way that this client takes",
                      path());
  }
  server_id_ = welcome.server_id;
  limits_ = welcome.limits;
  capabilities_ = welcome.capabilities;
  connection_->SetServerLimits(limits_);
  return Status();
}

Status Session::CheckTrainings() const {
  if ((capabilities_ & wire::kTrainings) != 0) return Status();
  return MakeStatus(Code::kUnsupported, "{}: the server is of a Quarry that keeps no states of trainings",
                    path());
}

Status Session::CheckEdgeLists() const {
  if ((capabilities_ & wire::kEdgeLists) != 0) return Status();
  return MakeStatus(
      Code::kUnsupported,
      "{}: the server is of a Quarry that does not say which edges came or went while a list of them is "
      "read: serve the database by this one, or open it itself",
      path());
}

Status Session::CheckTypedDraws(std::string_view asked) const {
  if ((capabilities_ & wire::kTypedDraws) != 0) return Status();
  return MakeStatus(Code::kUnsupported,
                    "{}: the server is of a Quarry without {}: serve the database by this one, or open it "
                    "itself",
                    path(), asked);
}

Status Session::CheckSample(const wire::Sample& sample) const {
  if (!sample.relation_fanouts.empty()) return CheckTypedDraws("batches by types of nodes and edges");
  if (sample.weighted) return CheckTypedDraws("blocks drawn by weights");
  return sample.replace ? CheckTypedDraws("blocks drawn with replacement") : Status();
}

Status Session::CheckSampler(const RoadSpec& spec) const {
  if (!spec.relation_fanouts.empty())
    QUARRY_RETURN_IF_ERROR(CheckTypedDraws("batches by types of nodes and edges"));
  if (TakesAll(spec)) QUARRY_RETURN_IF_ERROR(CheckTypedDraws("streams that take all neighbors"));
  if (spec.DrawsPlainly() || (capabilities_ & wire::kSamplers) != 0) return Status();
  return MakeStatus(
      Code::kUnsupported,
      "{}: the server is of a Quarry that draws neighbors uniformly, of each node by itself, alone", path());
}

Status Session::CheckParts() const {
  if ((capabilities_ & wire::kOwnIds) != 0) return Status();
  return MakeStatus(
      Code::kUnsupported,
      "{}: the server is of a Quarry whose batches of parts have the partitioning's ids of nodes", path());
}

Status Session::OpenAs(Deadline deadline) {
  const uint64_t share = std::min(limits_.budget_bytes / 4, MemoryLimitBytes());
  const uint64_t asked =
      options_.budget_bytes > 0 ? options_.budget_bytes : std::max(share, options_.budget_bytes_min);
  const double wait_seconds =
      std::min(options_.wait_seconds, std::chrono::duration<double>(deadline - Clock::now()).count());
  const wire::OpenSession request = {
      .client_id = options_.client_id,
      .budget_bytes = asked,
      .budget_bytes_min = std::min(options_.budget_bytes_min, asked),
      .wait_ms = static_cast<uint32_t>(std::clamp(wait_seconds * 1000, 0.0, 1e9))};
  QUARRY_TRY(Connection::Answer answer, Call(request, deadline));
  QUARRY_TRY(const wire::SessionOpened opened, Expect<wire::SessionOpened>(answer.response, path()));
  budget_bytes_ = std::min(opened.budget_bytes, MemoryLimitBytes());  // no claim is larger than the machine
  QUARRY_RETURN_IF_ERROR(AddRegions(opened.regions, answer.fds));
  for (const wire::Region& region : opened.regions) {
    if (region.access != wire::RegionAccess::kClientWrites || upload_ != nullptr) continue;
    MutexLock lock(mutex_);
    upload_ = std::make_shared<UploadRegion>(region.id, regions_.at(region.id));
  }
  return Status();
}

Result<Connection::Answer> Session::Call(const wire::Request& request, Deadline deadline,
                                         std::shared_ptr<const void> holds) {
  QUARRY_TRY(const Connection::Ticket ticket, connection_->Send(request, deadline, std::move(holds)));
  Result<Connection::Answer> answer = connection_->Wait(ticket, deadline);
  if (!answer.ok() && !lost()) connection_->Abandon(ticket);
  return answer;
}

std::shared_ptr<UploadRegion::Slice> Session::Upload(uint64_t bytes, Deadline deadline) {
  return upload_ == nullptr ? nullptr : upload_->Take(bytes, deadline);
}

wire::Range Session::RangeOf(const UploadRegion::Slice& slice, uint64_t begin, uint64_t bytes) const {
  return {.region = upload_->id(), .offset = slice.offset() + begin, .bytes = bytes};
}

Status Session::AddRegions(std::span<const wire::Region> regions, std::span<const UniqueFd> fds) {
  if (regions.size() != fds.size()) {
    return MakeStatus(Code::kCorruption, "{}: the server announced {} regions with {} descriptors", path(),
                      regions.size(), fds.size());
  }
  for (size_t i = 0; i < regions.size(); ++i) {
    QUARRY_TRY(std::shared_ptr<MemoryMap> memory, MemoryMap::OfRegion(regions[i], fds[i], path()));
    MutexLock lock(mutex_);
    if (regions_.emplace(regions[i].id, std::move(memory)).second) continue;
    return MakeStatus(Code::kCorruption, "{}: the server announced region {} twice", path(), regions[i].id);
  }
  return Status();
}

void Session::DropRegions(std::span<const wire::Region> regions) {
  MutexLock lock(mutex_);
  for (const wire::Region& region : regions) regions_.erase(region.id);
}

Result<std::shared_ptr<MemoryMap>> Session::MapOf(const wire::Range& range) {
  MutexLock lock(mutex_);
  const auto found = regions_.find(range.region);
  if (found == regions_.end()) {
    return MakeStatus(Code::kCorruption, "{}: the server leases bytes of region {}, which it never announced",
                      path(), range.region);
  }
  const Status fits = wire::CheckRange(range, found->second->bytes().size());
  if (fits.ok()) return found->second;
  return MakeStatus(Code::kCorruption, "{}: the server leases {}", path(), fits.message());
}

Result<Brought> Session::Take(wire::Payload payload, const std::optional<wire::Range>& rows,
                              bool release_at_once, Deadline deadline) {
  if (auto* bytes = std::get_if<0>(&payload)) {
    const auto owner = std::make_shared<const std::vector<std::byte>>(std::move(*bytes));
    return Brought{.bytes = *owner, .owner = owner};
  }
  const wire::Lease lease = std::get<wire::Lease>(payload);
  const auto guard = std::make_shared<LeaseGuard>(shared_from_this(), lease.id, release_at_once);
  if (lease.range.region == 0) return Read(lease, deadline);
  QUARRY_TRY(const std::shared_ptr<MemoryMap> memory, MapOf(lease.range));
  guard->Keep(memory);
  Brought brought{.bytes = BytesOf(*memory, lease.range), .owner = guard};
  if (!rows) return brought;
  QUARRY_TRY(const std::shared_ptr<MemoryMap> rows_memory, MapOf(*rows));
  guard->Keep(rows_memory);
  brought.outside = BytesOf(*rows_memory, *rows);
  return brought;
}

Status Session::CheckSize(uint64_t bytes) const {
  if (bytes <= std::max<uint64_t>(budget_bytes_, wire::Limits().message_bytes_max)) return Status();
  return MakeStatus(Code::kCorruption, "{}: the server gives {} bytes in a session of {}", path(), bytes,
                    budget_bytes_);
}

Result<Brought> Session::TakeCopy(wire::Payload payload, Deadline deadline) {
  const bool leased = std::holds_alternative<wire::Lease>(payload);
  QUARRY_TRY(Brought brought, Take(std::move(payload), {}, false, deadline));
  if (!leased || brought.bytes.empty()) return brought;
  QUARRY_RETURN_IF_ERROR(CheckSize(brought.bytes.size()));
  return CopyOf(brought, path());
}

Result<Brought> CopyOf(const Brought& brought, const std::string& path) {
  const uint64_t bytes = RoundUp(brought.bytes.size(), wire::kBatchAlignment);
  const std::shared_ptr<std::byte> memory(
      static_cast<std::byte*>(std::aligned_alloc(wire::kBatchAlignment, bytes)), std::free);
  if (memory == nullptr) return MakeStatus(Code::kOutOfBudget, "{}: no memory for {} bytes", path, bytes);
  std::memcpy(memory.get(), brought.bytes.data(), brought.bytes.size());
  return Brought{.bytes = {memory.get(), brought.bytes.size()}, .owner = memory};
}

// Memory is taken as the bytes arrive.
Result<std::vector<std::byte>> Session::TakeWhole(wire::Payload payload, Deadline deadline) {
  const auto* const lease = std::get_if<wire::Lease>(&payload);
  if (lease == nullptr || lease->range.region != 0) {
    QUARRY_TRY(const Brought brought, Take(std::move(payload), {}, false, deadline));
    return std::vector<std::byte>(brought.bytes.begin(), brought.bytes.end());
  }
  const LeaseGuard guard(shared_from_this(), lease->id, false);
  QUARRY_RETURN_IF_ERROR(CheckSize(lease->range.bytes));
  std::vector<std::byte> bytes;
  bytes.reserve(lease->range.bytes);
  QUARRY_RETURN_IF_ERROR(ReadChunks(*lease, deadline, [&](std::span<const std::byte> chunk) {
    bytes.insert(bytes.end(), chunk.begin(), chunk.end());
  }));
  return bytes;
}

Result<Brought> Session::Read(const wire::Lease& lease, Deadline deadline) {
  QUARRY_RETURN_IF_ERROR(CheckSize(lease.range.bytes));
  if (lease.range.bytes == 0) return Brought();
  QUARRY_TRY(const std::shared_ptr<MemoryMap> memory, MemoryMap::Anonymous(lease.range.bytes, path()));
  std::span<std::byte> left = memory->writable();
  QUARRY_RETURN_IF_ERROR(ReadChunks(lease, deadline, [&](std::span<const std::byte> chunk) {
    std::memcpy(left.data(), chunk.data(), chunk.size());
    left = left.subspan(chunk.size());
  }));
  return Brought{.bytes = memory->bytes(), .owner = memory};
}

// What no region has comes in answers, from its first byte to its last.
Status Session::ReadChunks(const wire::Lease& lease, Deadline deadline,
                           const std::function<void(std::span<const std::byte> chunk)>& take) {
  for (uint64_t at = 0; at < lease.range.bytes;) {
    const uint64_t left = lease.range.bytes - at;
    const wire::ReadLease request = {
        .lease = lease.id,
        .offset = at,
        .bytes = static_cast<uint32_t>(std::min<uint64_t>(left, wire::Limits().message_bytes_max))};
    QUARRY_TRY(Connection::Answer answer, Call(request, deadline));
    QUARRY_TRY(const wire::Chunk chunk, Expect<wire::Chunk>(answer.response, path()));
    if (chunk.bytes.empty() || chunk.bytes.size() > request.bytes) {
      return MakeStatus(Code::kCorruption, "{}: the server sent {} of {} bytes of a lease", path(),
                        chunk.bytes.size(), request.bytes);
    }
    take(chunk.bytes);
    at += chunk.bytes.size();
  }
  return Status::Ok();
}

}  // namespace quarry::client
