#include "upload.h"

#include <algorithm>

namespace quarry::client {
namespace {

constexpr uint64_t kSmallBytes = 64 << 10;     // cheaper to copy through a socket than to look for a place
constexpr uint64_t kMessageSpareBytes = 4096;  // for names, and the message's own structure

uint64_t InMessageMax(const Session& session) {
  const uint64_t message_bytes =
      std::min(session.limits().message_bytes_max, wire::Limits().message_bytes_max);
  return message_bytes > 2 * kMessageSpareBytes ? message_bytes - kMessageSpareBytes : kMessageSpareBytes / 2;
}

}  // namespace

uint64_t Upload::BytesMax(const Session& session) {
  return std::max(InMessageMax(session), session.upload_bytes_max());
}

Result<Upload> Upload::Make(Session& session, uint64_t bytes, size_t parts, Deadline deadline) {
  Upload upload(session);
  const uint64_t in_message = InMessageMax(session);
  if (bytes <= std::min(kSmallBytes, in_message)) return upload;
  const uint64_t in_region = bytes + parts * wire::kRangeAlignment;
  if (in_region <= session.upload_bytes_max()) {
    upload.slice_ = session.Upload(in_region, deadline);
    if (upload.slice_ != nullptr) return upload;
    return MakeStatus(Code::kIoError, "{}: other requests hold the memory that {} bytes would go up in",
                      session.path(), bytes);
  }
  if (bytes <= in_message) return upload;
  return MakeStatus(
      Code::kOutOfBudget,
      "{}: {} bytes in one request; the session has {} for them, and a message {}: send fewer at "
      "a time, or ask for more memory",
      session.path(), bytes, session.upload_bytes_max(), in_message);
}

}  // namespace quarry::client
