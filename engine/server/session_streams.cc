// Session: streams, which the hub produces, and leases.
#include <algorithm>
#include <utility>

#include "quarry/service/wire_forms.h"
#include "session.h"

namespace quarry {
void Session::On(uint64_t id, const wire::OpenStream& request) {
  const auto view = FindSnapshot(request.snapshot);
  if (!view.ok()) return Reply(id, view.status());
  if (const Status paid = budget_->PayForHeld(); !paid.ok()) return Reply(id, paid);
  pending_.at(id).cancel = [this, id] { Reply(id, CancelledStatus()); };
  core_.hub->Open(
      id_, client_id_, budget_, request, *view == nullptr ? nullptr : (*view)->snapshot(),
      OnStrand<OpenedStream>([this, id](const Result<OpenedStream>& opened) { StreamOpened(id, opened); }));
}

void Session::StreamOpened(uint64_t id, const Result<OpenedStream>& opened) {
  if (!opened.ok()) return Reply(id, opened.status());
  if (!pending_.contains(id)) {  // nobody would ever close it
    static_cast<void>(core_.hub->Close(id_, opened->stream));
    return;
  }
  wire::StreamOpened answer = {.stream = opened->stream,
                               .feature_dim = opened->feature_dim,
                               .slots = opened->slots,
                               .timestamp = opened->timestamp};
  OpenedRegion region = {.region = opened->region};
  std::vector<File> files;
  if (shared_memory_) {
    Result<File> file = HandOut(opened->region);
    if (!file.ok()) {
      static_cast<void>(core_.hub->Close(id_, opened->stream));
      return Reply(id, file.status());
    }
    files.push_back(std::move(file).value());
    region.region_id = ++regions_;
    answer.regions.push_back(
        {region.region_id, opened->region->bytes().size(), wire::RegionAccess::kClientReads});
  }
  streams_.emplace(opened->stream, std::move(region));
  Reply(id, answer, std::move(files));
}

// On the strand, since a request about a stream is seen after all earlier ones about it; the ids of a pass
// are copied here for that reason too.
void Session::On(uint64_t id, const wire::StartPass& request) {
  wire::StartPass pass = request;
  if (const auto* const ids = std::get_if<wire::NodeIds>(&request.seeds)) {
    Result<std::vector<NodeId>> copy = CopyOf(*ids);
    if (!copy.ok()) return Reply(id, copy.status());
    pass.seeds = wire::NodeIds(std::move(copy).value());
  }
  pending_.at(id).cancel = [this, id] { Reply(id, CancelledStatus()); };
  core_.hub->StartPass(id_, pass, OnStrand<uint64_t>([this, id](const Result<uint64_t>& batches) {
                         if (!batches.ok()) return Reply(id, batches.status());
                         Reply(id, wire::PassStarted{*batches});
                       }));
}

void Session::On(uint64_t id, const wire::NextBatch& request) {
  const uint64_t stream = request.stream;
  pending_.at(id).cancel = [this, id, stream] { core_.hub->CancelNext(id_, stream, id); };
  using Next = std::optional<StreamBatch>;
  core_.hub->Next(id_, stream, id, OnStrand<Next>([this, id, stream](const Result<Next>& batch) {
                    GiveBatch(id, stream, batch);
                  }));
}

void Session::GiveBatch(uint64_t id, uint64_t stream, const Result<std::optional<StreamBatch>>& result) {
  if (!result.ok()) return Reply(id, result.status());
  if (!result->has_value()) return Reply(id, wire::PassEnded{});
  const StreamBatch& batch = **result;
  const auto found = streams_.find(stream);
  if (found == streams_.end() || !pending_.contains(id)) {
    core_.hub->Release(id_, stream, batch.hold);
    return Reply(id, CancelledStatus());
  }
  const std::span<const std::byte> bytes = found->second.region->bytes().subspan(batch.offset, batch.bytes);
  wire::Batch answer = {.index = batch.index};
  if (!shared_memory_ && batch.bytes <= inline_bytes_max_) {
    answer.payload = std::vector<std::byte>(bytes.begin(), bytes.end());
    core_.hub->Release(id_, stream, batch.hold);
    return Reply(id, answer);
  }
  const wire::Range range = {found->second.region_id, shared_memory_ ? batch.offset : 0, batch.bytes};
  answer.payload = wire::Lease{++leases_made_, range};
  leases_.emplace(leases_made_, StreamLease{stream, batch.hold, bytes});
  leases_shown_ = leases_.size();
  if (shared_memory_) {
    shared_bytes_ += batch.bytes;
    core_.requests.shared_bytes.Add(batch.bytes);
  }
  Reply(id, answer);
}

void Session::On(uint64_t id, const wire::CloseStream& request) {
  const Status status = core_.hub->Close(id_, request.stream);
  if (!status.ok()) return Reply(id, status);
  std::erase_if(leases_, [&](const auto& entry) {
    const auto* const lease = std::get_if<StreamLease>(&entry.second);
    return lease != nullptr && lease->stream == request.stream;
  });
  leases_shown_ = leases_.size();
  streams_.erase(request.stream);
  Reply(id, wire::Done{});
}

void Session::ReplyStreamStats(uint64_t id, uint64_t stream) {
  const Result<StreamStats> stats = core_.hub->Stats(id_, stream);
  if (!stats.ok()) return Reply(id, stats.status());
  Reply(id, CountersOf(*stats));
}

void Session::On(uint64_t id, const wire::ReleaseLeases& request) {
  for (const uint64_t lease : request.leases) ReleaseLease(lease);
  leases_shown_ = leases_.size();
  Reply(id, wire::Done{});
}

void Session::ReleaseLease(uint64_t lease) {
  const auto found = leases_.find(lease);
  if (found == leases_.end()) return;
  const LeaseHold hold = std::move(found->second);
  leases_.erase(found);
  if (const auto* const batch = std::get_if<StreamLease>(&hold)) {
    core_.hub->Release(id_, batch->stream, batch->hold);
  } else if (const auto* const place = std::get_if<std::shared_ptr<AnswerMemory::Place>>(&hold)) {
    answers_->Free(*place);
  }
}

std::span<const std::byte> Session::HeldBytes(const LeaseHold& hold) {
  if (const auto* const batch = std::get_if<StreamLease>(&hold)) return batch->bytes;
  if (const auto* const place = std::get_if<std::shared_ptr<AnswerMemory::Place>>(&hold)) {
    return (*place)->bytes;
  }
  return std::get<HeldState>(hold)->state;
}

void Session::On(uint64_t id, const wire::ReadLease& request) {
  const auto found = leases_.find(request.lease);
  if (found == leases_.end()) {
    return Reply(id, MakeStatus(Code::kUsage, "lease {} is not held by this session", request.lease));
  }
  const std::span<const std::byte> bytes = HeldBytes(found->second);
  if (request.offset >= bytes.size()) {
    return Reply(id, MakeStatus(Code::kInvalidArgument, "lease {} has {} bytes, and none at {}",
                                request.lease, bytes.size(), request.offset));
  }
  const std::span<const std::byte> rest = bytes.subspan(request.offset);
  const std::span<const std::byte> chunk =
      rest.first(std::min<uint64_t>({rest.size(), request.bytes, chunk_bytes_max_}));
  Reply(id, wire::Chunk{{chunk.begin(), chunk.end()}});
}

}  // namespace quarry
