// BatchRoom: where the batches of a group lie in its region, and who still needs them.
//
// A batch takes whole slots, each as large as the largest batch is expected to be, so whatever is released
// fits the next batch, and as many batches as promised always fit; one that is larger than expected takes the
// next slot too. Its place is free when the last who has a reference lets go of it.
//
// Not thread-safe, references included: all of it is under the group's latch.
#pragma once

#include <cstdint>
#include <map>
#include <memory>

#include "quarry/base/units.h"
#include "range_allocator.h"

namespace quarry {

class BatchRoom {
 public:
  // A batch in the region, or its place while it is copied there.
  class Place {
   public:
    Place(BatchRoom& room, uint64_t nth, uint64_t at, uint64_t size)
        : number(nth), offset(at), bytes(size), room_(room) {}
    ~Place() { room_.Free(*this); }
    Place(const Place&) = delete;
    Place& operator=(const Place&) = delete;

    const uint64_t number;  // in the order of production
    const uint64_t offset;
    const uint64_t bytes;
    uint64_t index = 0;  // of the batch in its pass
    uint64_t pass = 0;   // the group's count of passes

   private:
    BatchRoom& room_;
  };
  using Ref = std::shared_ptr<const Place>;

  // REQUIRES: whole slots
  BatchRoom(uint64_t region_bytes, uint64_t slot_bytes)
      : region_bytes_(region_bytes), slot_bytes_(slot_bytes), free_(region_bytes) {}

  // Null when there is no room now.
  std::shared_ptr<Place> Take(uint64_t bytes) {
    const auto offset = free_.Allocate(RoundUp(bytes, slot_bytes_));
    if (!offset) return nullptr;
    auto place = std::make_shared<Place>(*this, next_number_++, *offset, bytes);
    places_.emplace(place->number, place.get());
    return place;
  }
  uint64_t region_bytes() const { return region_bytes_; }
  const std::map<uint64_t, const Place*>& places() const { return places_; }  // taken, the oldest first

 private:
  void Free(const Place& place) {
    places_.erase(place.number);
    free_.Free(place.offset, RoundUp(place.bytes, slot_bytes_));
  }

  const uint64_t region_bytes_;
  const uint64_t slot_bytes_;
  RangeAllocator free_;
  std::map<uint64_t, const Place*> places_;
  uint64_t next_number_ = 0;
};

}  // namespace quarry
