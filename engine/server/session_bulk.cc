// Session: bytes beside messages, both ways.
#include <cstring>
#include <utility>

#include "session.h"

namespace quarry {

void Session::MakeRoom(uint64_t id, uint64_t bytes, const BulkThen& then) {
  if (bytes <= inline_bytes_max_) {
    auto bulk = std::make_shared<BulkAnswer>();
    if (bytes > kUnpaidBytes) {
      auto reservation = budget_->Reserve(bytes, "an answer");
      if (!reservation.ok()) return Reply(id, reservation.status());
      bulk->reservation = std::move(reservation).value();
    }
    bulk->message.resize(bytes);
    return then(std::move(bulk));
  }
  const auto found = pending_.find(id);
  if (found == pending_.end()) return;
  found->second.cancel = [this, id] {
    if (answers_->Forget(id)) Reply(id, CancelledStatus());
  };
  answers_->Allocate(id, bytes, [this, id, then](Result<std::shared_ptr<AnswerMemory::Place>> place) {
    if (!place.ok()) return Reply(id, place.status());
    auto bulk = std::make_shared<BulkAnswer>();
    bulk->place = std::move(place).value();
    then(std::move(bulk));
  });
}

void Session::ReplyBulk(uint64_t id, const Status& status, BulkAnswer& bulk,
                        const std::function<wire::Response(wire::Payload)>& response) {
  if (!status.ok() || !pending_.contains(id)) {
    if (bulk.place != nullptr) answers_->Free(bulk.place);
    return Reply(id, status.ok() ? CancelledStatus() : status);
  }
  if (bulk.place == nullptr) return Reply(id, response(std::move(bulk.message)));
  const wire::Lease lease = {++leases_made_, bulk.place->range};
  leases_.emplace(lease.id, bulk.place);
  leases_shown_ = leases_.size();
  if (shared_memory_) {
    shared_bytes_ += lease.range.bytes;
    core_.requests.shared_bytes.Add(lease.range.bytes);
  }
  Reply(id, response(lease));
}

Result<std::span<const std::byte>> Session::Uploaded(const wire::Range& range) const {
  if (upload_ == nullptr || range.region != upload_region_id_) {
    return MakeStatus(Code::kInvalidArgument, "region {} is none that this session writes to", range.region);
  }
  QUARRY_RETURN_IF_ERROR(wire::CheckRange(range, upload_->bytes().size()));
  return std::span<const std::byte>(upload_->bytes().subspan(range.offset, range.bytes));
}

Result<std::vector<std::byte>> Session::CopyOf(const wire::Bulk& bulk) const {
  if (const auto* const bytes = std::get_if<std::vector<std::byte>>(&bulk)) return *bytes;
  QUARRY_TRY(const std::span<const std::byte> shared, Uploaded(std::get<wire::Range>(bulk)));
  return std::vector<std::byte>(shared.begin(), shared.end());
}

template <typename Id>
Result<std::vector<Id>> Session::CopyOf(const std::variant<std::vector<Id>, wire::Range>& ids) const {
  if (const auto* const list = std::get_if<std::vector<Id>>(&ids)) return *list;
  QUARRY_TRY(const std::span<const std::byte> shared, Uploaded(std::get<wire::Range>(ids)));
  std::vector<Id> copy(shared.size() / sizeof(Id));
  std::memcpy(copy.data(), shared.data(), copy.size() * sizeof(Id));
  return copy;
}
template Result<std::vector<NodeId>> Session::CopyOf(const wire::NodeIds& ids) const;
template Result<std::vector<uint64_t>> Session::CopyOf(const wire::RowIds& ids) const;

}  // namespace quarry
