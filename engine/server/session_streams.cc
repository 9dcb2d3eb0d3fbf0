#include "session_streams.h"

#include <algorithm>
#include <utility>

#include "quarry/service/wire_forms.h"
#include "session_reads.h"

namespace quarry {

void Session::Streams::On(uint64_t id, const wire::OpenStream& request) {
  const auto view = session_.reads_->FindSnapshot(request.snapshot);
  if (!view.ok()) return Reply(id, view.status());
  if (const Status paid = budget().PayForHeld(); !paid.ok()) return Reply(id, paid);
  OnCancel(id, [this, id] { Reply(id, CancelledStatus()); });
  core_.hub->Open(
      session_id(), session_.client_id_, session_.budget_, request,
      *view == nullptr ? nullptr : (*view)->snapshot(),
      OnStrand<OpenedStream>([this, id](const Result<OpenedStream>& opened) { Opened(id, opened); }));
}

void Session::Streams::Opened(uint64_t id, const Result<OpenedStream>& opened) {
  if (!opened.ok()) return Reply(id, opened.status());
  if (Find(id) == nullptr) {  // nobody would ever close it
    static_cast<void>(core_.hub->Close(session_id(), opened->stream));
    return;
  }
  wire::StreamOpened answer = {.stream = opened->stream,
                               .feature_dim = opened->feature_dim,
                               .slots = opened->slots,
                               .timestamp = opened->timestamp,
                               .parts = opened->parts};
  Region region = {.region = opened->region};
  std::vector<File> files;
  if (session_.shared_memory_) {
    Result<File> file = bulk().HandOut(opened->region);
    if (!file.ok()) {
      static_cast<void>(core_.hub->Close(session_id(), opened->stream));
      return Reply(id, file.status());
    }
    files.push_back(std::move(file).value());
    region.id = bulk().NextRegion();
    answer.regions.push_back({region.id, opened->region->bytes().size(), wire::RegionAccess::kClientReads});
  }
  open_.emplace(opened->stream, std::move(region));
  Reply(id, answer, std::move(files));
}

// On the strand, since a request about a stream is seen after all earlier ones about it; the ids of a pass
// are copied here for that reason too.
void Session::Streams::On(uint64_t id, const wire::StartPass& request) {
  wire::StartPass pass = request;
  if (const auto* const ids = std::get_if<wire::NodeIds>(&request.seeds)) {
    Result<std::vector<NodeId>> copy = bulk().CopyOf(*ids);
    if (!copy.ok()) return Reply(id, copy.status());
    pass.seeds = wire::NodeIds(std::move(copy).value());
  }
  OnCancel(id, [this, id] { Reply(id, CancelledStatus()); });
  core_.hub->StartPass(session_id(), pass, OnStrand<uint64_t>([this, id](const Result<uint64_t>& batches) {
                         if (!batches.ok()) return Reply(id, batches.status());
                         Reply(id, wire::PassStarted{*batches});
                       }));
}

void Session::Streams::On(uint64_t id, const wire::NextBatch& request) {
  const uint64_t stream = request.stream;
  OnCancel(id, [this, id, stream] { core_.hub->CancelNext(session_id(), stream, id); });
  using Next = std::optional<StreamBatch>;
  core_.hub->Next(session_id(), stream, id, OnStrand<Next>([this, id, stream](const Result<Next>& batch) {
                    GiveBatch(id, stream, batch);
                  }));
}

void Session::Streams::GiveBatch(uint64_t id, uint64_t stream,
                                 const Result<std::optional<StreamBatch>>& result) {
  if (!result.ok()) return Reply(id, result.status());
  if (!result->has_value()) return Reply(id, wire::PassEnded{});
  const StreamBatch& batch = **result;
  const auto found = open_.find(stream);
  if (found == open_.end() || Find(id) == nullptr) {
    core_.hub->Release(session_id(), stream, batch.hold);
    return Reply(id, CancelledStatus());
  }
  const std::span<const std::byte> bytes = found->second.region->bytes().subspan(batch.offset, batch.bytes);
  wire::Batch answer = {.index = batch.index};
  if (!session_.shared_memory_ && bulk().FitsMessage(batch.bytes)) {
    answer.payload = std::vector<std::byte>(bytes.begin(), bytes.end());
    core_.hub->Release(session_id(), stream, batch.hold);
    return Reply(id, answer);
  }
  const wire::Range range = {found->second.id, session_.shared_memory_ ? batch.offset : 0, batch.bytes};
  answer.payload = bulk().LeaseOut(range, Bulk::BatchLease{stream, batch.hold, bytes});
  Reply(id, answer);
}

void Session::Streams::On(uint64_t id, const wire::CloseStream& request) {
  const Status status = core_.hub->Close(session_id(), request.stream);
  if (!status.ok()) return Reply(id, status);
  bulk().Forget(request.stream);
  open_.erase(request.stream);
  Reply(id, wire::Done{});
}

void Session::Streams::On(uint64_t id, const wire::Stats& request) {
  if (request.stream == 0) return Reply(id, wire::Counters{core_.metrics.Counters()});
  const Result<StreamStats> stats = core_.hub->Stats(session_id(), request.stream);
  if (!stats.ok()) return Reply(id, stats.status());
  Reply(id, CountersOf(*stats));
}

}  // namespace quarry
