// Session::Bulk: bytes beside messages, both ways: the regions that a session and its client share, answers that are too long
// for a message, and what the client holds until it releases it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <variant>
#include <vector>

#include "answer_memory.h"
#include "session_part.h"

namespace quarry {

class Session::Bulk final : Part {
 public:
  // Where an answer is written: into its message, or into a place that is leased.
  struct Answer {
    std::shared_ptr<AnswerMemory::Place> place;  // null: `message`
    std::vector<std::byte> message;
    MemoryBudget::Reservation reservation;  // for the message, where it is long
    std::span<std::byte> bytes() { return place != nullptr ? place->bytes : std::span(message); }
  };
  using Then = std::function<void(std::shared_ptr<Answer>)>;
  // What the client holds: an answer, a batch, or the state of a training run, which lies in no region.
  struct BatchLease {
    uint64_t stream = 0, hold = 0;
    std::span<const std::byte> bytes;
  };
  using HeldState = std::shared_ptr<TrainingService::Read>;
  using Held = std::variant<std::shared_ptr<AnswerMemory::Place>, BatchLease, HeldState>;

  explicit Bulk(Session& session) : Part(session) {}
  void On(uint64_t id, const wire::ReleaseLeases& request);
  void On(uint64_t id, const wire::ReadLease& request);

  // Makes the regions of a session that opens, from its budget: one for what the client sends, one for answers.
  Status Open(std::vector<wire::Region>& announced, std::vector<File>& files);
  void End();

  // Calls `then` once there is room for an answer of `bytes`; answers `id` with the reason when there cannot be.
  void MakeRoom(uint64_t id, uint64_t bytes, const Then& then);
  // Answers with what was written, or gives the room back.
  void ReplyWith(uint64_t id, const Status& status, Answer& answer,
                 const std::function<wire::Response(wire::Payload)>& response);
  // `held` is the client's until it releases the lease.
  wire::Lease LeaseOut(const wire::Range& range, Held held);
  // The leases of a stream that is closed.
  void Forget(uint64_t stream);
  bool FitsMessage(uint64_t bytes) const { return bytes <= message_bytes_max_; }

  // A region's descriptor for the client, whose account it is on from then on, and the number that it is announced by.
  Result<File> HandOut(const std::shared_ptr<SharedRegion>& region);
  uint32_t NextRegion() { return ++regions_; }

  // The server's own copy of what a request brings along. Any thread.
  Result<std::vector<std::byte>> CopyOf(const wire::Bulk& bulk) const;
  template <typename Id>
  Result<std::vector<Id>> CopyOf(const std::variant<std::vector<Id>, wire::Range>& ids) const;
  Result<std::span<const std::byte>> Uploaded(const wire::Range& range) const;

 private:
  Status MakeRegions(std::vector<wire::Region>& announced, std::vector<File>& files);
  static std::span<const std::byte> BytesOf(const Held& held);
  void Release(uint64_t lease);
  void ShowLeases() { session_.leases_shown_ = leases_.size(); }

  uint64_t message_bytes_max_ = 0;  // longest answer in a message
  std::vector<MemoryBudget::Reservation> reservations_;
  uint32_t regions_ = 0;  // announced so far
  uint32_t upload_id_ = 0;
  std::shared_ptr<SharedRegion> upload_;  // what the client writes to; null: it maps none
  std::unique_ptr<AnswerMemory> answers_;
  uint64_t leases_made_ = 0;
  std::map<uint64_t, Held> leases_;
};

}  // namespace quarry
