// BatchRoom: where the batches of a group lie in its region, and who still needs them.
//
// A batch has a place: a stretch of addresses for twice the largest batch that is expected. Memory is paid
// for batches as expected, and a spare for larger ones: a place that has held one stays as large, since
// shared memory cannot be given back by parts. So as many batches as promised always fit, whoever holds the
// others; with ranges of the batches' own sizes, a region of two batches could be free in two pieces while a
// client waits for the second with the first in its hands. A place is free when the last who has a reference
// lets go of it.
//
// Not thread-safe, references included: all of it is under the group's latch.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "quarry/base/units.h"
#include "quarry/format/wire.h"

namespace quarry {

class BatchRoom {
 public:
  // A batch in the region, or its place while it is copied there.
  class Place {
   public:
    Place(BatchRoom& room, uint64_t nth, size_t which, uint64_t size)
        : number(nth), offset(which * room.stride_), bytes(size), room_(room), which_(which) {}
    ~Place() { room_.Free(*this); }
    Place(const Place&) = delete;
    Place& operator=(const Place&) = delete;

    const uint64_t number;  // in the order of production
    const uint64_t offset;
    const uint64_t bytes;
    uint64_t index = 0;  // the batch's position in its pass
    uint64_t pass = 0;   // the group's count of passes

   private:
    friend class BatchRoom;
    BatchRoom& room_;
    const size_t which_;
  };
  using Ref = std::shared_ptr<const Place>;

  // Addresses of the region, of which `places` * slot_bytes + spare_bytes are used at most.
  static uint64_t AddressBytes(uint64_t places, uint64_t slot_bytes) { return places * 2 * slot_bytes; }

  // REQUIRES: multiples of wire::kLeaseAlignment
  BatchRoom(size_t places, uint64_t slot_bytes, uint64_t spare_bytes)
      : stride_(AddressBytes(1, slot_bytes)), spare_bytes_(spare_bytes), all_(places, {slot_bytes, false}) {}

  // Null when there is no room now.
  std::shared_ptr<Place> Take(uint64_t bytes) {
    const auto found = std::ranges::min_element(all_, {}, [bytes](const Stretch& stretch) {
      return stretch.taken ? ~uint64_t{0} : MissingBytes(stretch, bytes);
    });
    if (found->taken || !Fits(*found, bytes)) return nullptr;
    const uint64_t missing = MissingBytes(*found, bytes);
    spare_bytes_ -= missing;
    found->bytes += missing;
    found->taken = true;
    const auto which = static_cast<size_t>(found - all_.begin());
    auto place = std::make_shared<Place>(*this, next_number_++, which, bytes);
    places_.emplace(place->number, place.get());
    return place;
  }
  // Whether there would be room if all were free.
  bool CanHold(uint64_t bytes) const {
    return std::ranges::any_of(all_, [&](const Stretch& stretch) { return Fits(stretch, bytes); });
  }
  const std::map<uint64_t, const Place*>& places() const { return places_; }  // taken, the oldest first

 private:
  struct Stretch {
    uint64_t bytes = 0;  // paid
    bool taken = false;
  };

  static uint64_t MissingBytes(const Stretch& stretch, uint64_t bytes) {
    const uint64_t wanted = RoundUp(bytes, wire::kLeaseAlignment);
    return wanted - std::min(wanted, stretch.bytes);
  }
  bool Fits(const Stretch& stretch, uint64_t bytes) const {
    return bytes <= stride_ && MissingBytes(stretch, bytes) <= spare_bytes_;
  }
  void Free(const Place& place) {
    places_.erase(place.number);
    all_[place.which_].taken = false;
  }

  const uint64_t stride_;
  uint64_t spare_bytes_;
  std::vector<Stretch> all_;
  std::map<uint64_t, const Place*> places_;
  uint64_t next_number_ = 0;
};

}  // namespace quarry
