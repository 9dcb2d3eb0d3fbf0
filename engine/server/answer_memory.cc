#include "answer_memory.h"

#include <algorithm>
#include <utility>

#include "quarry/base/units.h"

namespace quarry {

AnswerMemory::AnswerMemory(uint32_t region_id, std::shared_ptr<SharedRegion> region, MemoryBudget& budget)
    : region_id_(region_id), region_(std::move(region)), budget_(budget) {
  if (region_ != nullptr) ranges_.emplace(region_->bytes().size());
}

Result<std::shared_ptr<AnswerMemory::Place>> AnswerMemory::Take(uint64_t bytes) {
  auto place = std::make_shared<Place>();
  if (region_ == nullptr) {
    QUARRY_TRY(place->reservation, budget_.Reserve(IoBuffer::MappedBytes(bytes), "an answer"));
    QUARRY_TRY(place->own, IoBuffer::Allocate(bytes));
    place->bytes = place->own.span();
    place->range = {.bytes = bytes};
    return place;
  }
  const std::optional<uint64_t> offset = ranges_->Allocate(bytes);
  if (!offset) {
    return MakeStatus(
        Code::kOutOfBudget,
        "an answer of {} does not fit the {} that the session has for answers: ask for less at a time, "
        "or open the session with a larger budget",
        FormatBytes(bytes), FormatBytes(region_->bytes().size()));
  }
  place->range = {.region = region_id_, .offset = *offset, .bytes = bytes};
  place->bytes = region_->bytes().subspan(*offset, bytes);
  return place;
}

void AnswerMemory::Allocate(uint64_t request, uint64_t bytes, Then then) {
  const bool fits = region_ == nullptr || bytes <= region_->bytes().size();
  if (fits && !waiters_.empty()) return waiters_.push_back({request, bytes, std::move(then)});
  Result<std::shared_ptr<Place>> place = Take(bytes);
  if (place.ok()) ++held_;
  if (!place.ok() && fits && held_ > 0) return waiters_.push_back({request, bytes, std::move(then)});
  then(std::move(place));
}

bool AnswerMemory::Forget(uint64_t request) {
  return std::erase_if(waiters_, [request](const Waiter& waiter) { return waiter.request == request; }) > 0;
}

void AnswerMemory::Free(const std::shared_ptr<Place>& place) {
  if (region_ != nullptr) ranges_->Free(place->range.offset, place->range.bytes);
  place->own = IoBuffer();
  place->reservation.Release();
  --held_;
  while (!waiters_.empty()) {
    Result<std::shared_ptr<Place>> next = Take(waiters_.front().bytes);
    if (!next.ok() && held_ > 0) return;
    if (next.ok()) ++held_;
    const Then then = std::move(waiters_.front().then);
    waiters_.pop_front();
    then(std::move(next));
  }
}

}  // namespace quarry
