// Answers to bytes and back, as wire_requests.cc does it.
#include "quarry/format/wire_responses.h"

#include "schema_codec.h"
#include "wire_bytes.h"
#include "wire_check.h"

namespace quarry::wire {
namespace {

Result<Response> ReadResponse(schema::Response::Reader in) {
  if (in.isWelcome() && in.getWelcome().getMagic() != kMagic) {
    return MakeStatus(Code::kCorruption, "a welcome that begins with {:#018x} instead of {:#018x}",
                      in.getWelcome().getMagic(), kMagic);
  }
  Response response;
  QUARRY_RETURN_IF_ERROR(format::ReadRoot<schema::Response>(in, kListedMax, response));
  return response;
}

// What a client asked for was right; an answer that is not is the server's fault.
Status AsCorruption(const Status& status, uint64_t id) {
  if (status.code() != Code::kInvalidArgument) return status;
  return MakeStatus(Code::kCorruption, "answer {}: {}", id, status.message());
}

}  // namespace

Result<std::vector<std::byte>> EncodeResponse(uint64_t id, const Response& response, const Limits& limits) {
  QUARRY_RETURN_IF_ERROR(Check(response, limits));
  const bool welcome = std::holds_alternative<Welcome>(response);
  const uint32_t bytes_max = welcome ? limits.hello_bytes_max : limits.message_bytes_max;
  capnp::MallocMessageBuilder message(FirstSegmentWords(bytes_max));
  auto root = message.initRoot<schema::Response>();
  format::WriteRoot<schema::Response>(response, root);
  if (welcome) root.getWelcome().setMagic(kMagic);
  return FrameOf(id, FdsOf(response), message, bytes_max, "answer");
}

Result<Response> DecodeResponse(const Frame& frame, const Limits& limits) {
  auto read = ReadFrame<schema::Response, Response>(frame, limits, "answer", ReadResponse);
  if (!read.ok()) return AsCorruption(read.status(), frame.id);
  if (Status status = Check(*read, limits); !status.ok()) return AsCorruption(status, frame.id);
  if (frame.id == 0 && !std::holds_alternative<Failure>(*read)) {
    return MakeStatus(Code::kCorruption, "an answer to no request");
  }
  if (frame.fds != FdsOf(*read)) {
    return MakeStatus(Code::kCorruption, "answer {}: {} file descriptors come with {} regions", frame.id,
                      frame.fds, FdsOf(*read));
  }
  return read;
}

}  // namespace quarry::wire
