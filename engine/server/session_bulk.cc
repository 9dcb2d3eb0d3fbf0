#include "session_bulk.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "quarry/base/units.h"

namespace quarry {
namespace {

constexpr uint64_t kUploadBytesMax = 16 * kMiB;
constexpr uint64_t kAnswerBytesMax = 256 * kMiB;
constexpr uint64_t kRegionShare = 8;          // part of a session's budget, for each of its regions
constexpr uint64_t kInlineBytes = 32 * kKiB;  // copying these costs less than a lease's release

}  // namespace

Result<File> Session::Bulk::HandOut(const std::shared_ptr<SharedRegion>& region) {
  QUARRY_TRY(File file, region->HandOut());
  budget().HandedOut(region);
  return file;
}

Status Session::Bulk::Open(std::vector<wire::Region>& announced, std::vector<File>& files) {
  const uint64_t chunk = session_.chunk_bytes_max_;
  message_bytes_max_ = session_.shared_memory_ ? std::min(chunk, kInlineBytes) : chunk;
  if (!session_.shared_memory_) {
    answers_ = std::make_unique<AnswerMemory>(0, nullptr, budget());
    return Status::Ok();
  }
  const Status made = MakeRegions(announced, files);
  if (!made.ok()) reservations_.clear();
  return made;
}

Status Session::Bulk::MakeRegions(std::vector<wire::Region>& announced, std::vector<File>& files) {
  std::vector<std::shared_ptr<SharedRegion>> regions;
  const auto make = [&](uint64_t bytes_max, wire::RegionAccess access) -> Status {
    const uint64_t share = RoundDown(budget().limit_bytes() / kRegionShare, wire::kLeaseAlignment);
    const uint64_t bytes = std::min(bytes_max, share);
    QUARRY_TRY(auto reservation, budget().Reserve(bytes, "a region of shared memory"));
    QUARRY_TRY(auto region, SharedRegion::Make(bytes, access));
    QUARRY_TRY(File file, HandOut(region));
    files.push_back(std::move(file));
    reservations_.push_back(std::move(reservation));
    regions.push_back(std::move(region));
    announced.push_back({.id = ++regions_, .bytes = bytes, .access = access});
    return Status::Ok();
  };
  QUARRY_RETURN_IF_ERROR(make(kUploadBytesMax, wire::RegionAccess::kClientWrites));
  QUARRY_RETURN_IF_ERROR(make(kAnswerBytesMax, wire::RegionAccess::kClientReads));
  upload_ = regions[0];
  upload_id_ = announced[0].id;
  answers_ = std::make_unique<AnswerMemory>(announced[1].id, regions[1], budget());
  return Status::Ok();
}

void Session::Bulk::MakeRoom(uint64_t id, uint64_t bytes, const Then& then) {
  if (bytes <= message_bytes_max_) {
    auto answer = std::make_shared<Answer>();
    if (bytes > kUnpaidBytes) {
      auto reservation = budget().Reserve(bytes, "an answer");
      if (!reservation.ok()) return Reply(id, reservation.status());
      answer->reservation = std::move(reservation).value();
    }
    answer->message.resize(bytes);
    return then(std::move(answer));
  }
  Pending* const pending = Find(id);
  if (pending == nullptr) return;
  pending->cancel = [this, id] {
    if (answers_->Forget(id)) Reply(id, CancelledStatus());
  };
  answers_->Allocate(id, bytes, [this, id, then](Result<std::shared_ptr<AnswerMemory::Place>> place) {
    if (!place.ok()) return Reply(id, place.status());
    auto answer = std::make_shared<Answer>();
    answer->place = std::move(place).value();
    then(std::move(answer));
  });
}

void Session::Bulk::ReplyWith(uint64_t id, const Status& status, Answer& answer,
                              const std::function<wire::Response(wire::Payload)>& response) {
  if (!status.ok() || Find(id) == nullptr) {
    if (answer.place != nullptr) answers_->Free(answer.place);
    return Reply(id, status.ok() ? CancelledStatus() : status);
  }
  if (answer.place == nullptr) return Reply(id, response(std::move(answer.message)));
  Reply(id, response(LeaseOut(answer.place->range, answer.place)));
}

wire::Lease Session::Bulk::LeaseOut(const wire::Range& range, Held held) {
  const wire::Lease lease = {++leases_made_, range};
  const bool in_region = !std::holds_alternative<HeldState>(held);
  leases_.emplace(lease.id, std::move(held));
  ShowLeases();
  if (session_.shared_memory_ && in_region) {
    session_.shared_bytes_ += range.bytes;
    core_.requests.shared_bytes.Add(range.bytes);
  }
  return lease;
}

void Session::Bulk::Forget(uint64_t stream) {
  std::erase_if(leases_, [stream](const auto& entry) {
    const auto* const lease = std::get_if<BatchLease>(&entry.second);
    return lease != nullptr && lease->stream == stream;
  });
  ShowLeases();
}

void Session::Bulk::End() {
  leases_.clear();
  ShowLeases();
}

void Session::Bulk::On(uint64_t id, const wire::ReleaseLeases& request) {
  for (const uint64_t lease : request.leases) Release(lease);
  ShowLeases();
  Reply(id, wire::Done{});
}

void Session::Bulk::Release(uint64_t lease) {
  const auto found = leases_.find(lease);
  if (found == leases_.end()) return;
  const Held held = std::move(found->second);
  leases_.erase(found);
  if (const auto* const batch = std::get_if<BatchLease>(&held)) {
    core_.hub->Release(session_id(), batch->stream, batch->hold);
  } else if (const auto* const place = std::get_if<std::shared_ptr<AnswerMemory::Place>>(&held)) {
    answers_->Free(*place);
  }
}

std::span<const std::byte> Session::Bulk::BytesOf(const Held& held) {
  if (const auto* const batch = std::get_if<BatchLease>(&held)) return batch->bytes;
  if (const auto* const place = std::get_if<std::shared_ptr<AnswerMemory::Place>>(&held)) {
    return (*place)->bytes;
  }
  return std::get<HeldState>(held)->state;
}

void Session::Bulk::On(uint64_t id, const wire::ReadLease& request) {
  const auto found = leases_.find(request.lease);
  if (found == leases_.end()) {
    return Reply(id, MakeStatus(Code::kUsage, "lease {} is not held by this session", request.lease));
  }
  const std::span<const std::byte> bytes = BytesOf(found->second);
  if (request.offset >= bytes.size()) {
    return Reply(id, MakeStatus(Code::kInvalidArgument, "lease {} has {} bytes, and none at {}",
                                request.lease, bytes.size(), request.offset));
  }
  const std::span<const std::byte> rest = bytes.subspan(request.offset);
  const std::span<const std::byte> chunk =
      rest.first(std::min<uint64_t>({rest.size(), request.bytes, session_.chunk_bytes_max_}));
  Reply(id, wire::Chunk{{chunk.begin(), chunk.end()}});
}

Result<std::span<const std::byte>> Session::Bulk::Uploaded(const wire::Range& range) const {
  if (upload_ == nullptr || range.region != upload_id_) {
    return MakeStatus(Code::kInvalidArgument, "region {} is none that this session writes to", range.region);
  }
  QUARRY_RETURN_IF_ERROR(wire::CheckRange(range, upload_->bytes().size()));
  return std::span<const std::byte>(upload_->bytes().subspan(range.offset, range.bytes));
}

Result<std::vector<std::byte>> Session::Bulk::CopyOf(const wire::Bulk& bulk) const {
  if (const auto* const bytes = std::get_if<std::vector<std::byte>>(&bulk)) return *bytes;
  QUARRY_TRY(const std::span<const std::byte> shared, Uploaded(std::get<wire::Range>(bulk)));
  return std::vector<std::byte>(shared.begin(), shared.end());
}

template <typename Id>
Result<std::vector<Id>> Session::Bulk::CopyOf(const std::variant<std::vector<Id>, wire::Range>& ids) const {
  if (const auto* const list = std::get_if<std::vector<Id>>(&ids)) return *list;
  QUARRY_TRY(const std::span<const std::byte> shared, Uploaded(std::get<wire::Range>(ids)));
  std::vector<Id> copy(shared.size() / sizeof(Id));
  std::memcpy(copy.data(), shared.data(), copy.size() * sizeof(Id));
  return copy;
}
template Result<std::vector<NodeId>> Session::Bulk::CopyOf(const wire::NodeIds& ids) const;
template Result<std::vector<uint64_t>> Session::Bulk::CopyOf(const wire::RowIds& ids) const;

}  // namespace quarry
