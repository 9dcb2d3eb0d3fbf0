// StagingRing: places for reads in flight within one buffer: given out in order, freed in any order,
// reclaimed in order. Counts bytes only; the memory is its user's. One thread.
#pragma once

#include <cassert>
#include <cstdint>
#include <deque>
#include <optional>

namespace quarry {

class StagingRing {
 public:
  struct Piece {
    uint64_t id = 0;
    size_t offset = 0;
  };

  explicit StagingRing(size_t bytes) : bytes_(bytes) {}

  // A contiguous place, or nothing until enough has been freed. REQUIRES: 0 < bytes <= the ring's.
  std::optional<Piece> Allocate(size_t bytes) {
    assert(bytes > 0 && bytes <= bytes_);
    if (places_.empty()) head_ = 0;
    const size_t oldest = places_.empty() ? 0 : places_.front().begin;
    if (places_.empty() || head_ > oldest) {  // free: [head_, bytes_) and [0, oldest)
      if (bytes_ - head_ < bytes) {
        if (oldest < bytes) return std::nullopt;
        head_ = 0;
      }
    } else if (oldest - head_ < bytes) {  // wrapped; free: [head_, oldest)
      return std::nullopt;
    }
    const Piece piece{first_id_ + places_.size(), head_};
    places_.push_back({head_, false});
    head_ += bytes;
    return piece;
  }

  void Free(uint64_t id) {
    assert(id >= first_id_ && id - first_id_ < places_.size() && !places_[id - first_id_].freed);
    places_[id - first_id_].freed = true;
    while (!places_.empty() && places_.front().freed) {
      places_.pop_front();
      ++first_id_;
    }
  }

  void Clear() {
    first_id_ += places_.size();
    places_.clear();
  }

 private:
  struct Place {
    size_t begin;
    bool freed;
  };
  const size_t bytes_;
  std::deque<Place> places_;  // oldest first
  uint64_t first_id_ = 0;     // id of places_.front()
  size_t head_ = 0;           // where the next place begins
};

}  // namespace quarry
