// Upload: what a request brings along, in its message where that holds it, else in the region that the server
// reads. Private to this library.
#pragma once

#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <variant>
#include <vector>

#include "quarry/base/units.h"
#include "session.h"

namespace quarry::client {

class Upload {
 public:
  // Makes an upload for `parts` spans of `bytes` bytes together. kOutOfBudget when neither message nor region
  // holds them; kIoError when the region has no room in time.
  static Result<Upload> Make(Session& session, uint64_t bytes, size_t parts, Deadline deadline);
  // The most that Make takes, of one part.
  static uint64_t BytesMax(const Session& session);

  // The elements, or where they are now.
  template <typename T>
  std::variant<std::vector<T>, wire::Range> Add(std::span<const T> elements) {
    if (slice_ == nullptr || elements.empty()) return std::vector<T>(elements.begin(), elements.end());
    const uint64_t begin =
        std::exchange(used_, RoundUp(used_ + elements.size_bytes(), wire::kRangeAlignment));
    std::memcpy(slice_->bytes().data() + begin, elements.data(), elements.size_bytes());
    return session_->RangeOf(*slice_, begin, elements.size_bytes());
  }
  // To be kept until the request is answered.
  std::shared_ptr<const void> holds() const { return slice_; }

 private:
  explicit Upload(Session& session) : session_(&session) {}
  Session* session_;
  std::shared_ptr<UploadRegion::Slice> slice_;  // null: in the message
  uint64_t used_ = 0;
};

}  // namespace quarry::client
