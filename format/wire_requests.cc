// Requests to bytes and back. A request that this file writes, it reads back equal; what else arrives is held
// to the same rules (wire_check.h). The fields are those of the structs (schema_map.h).
#include "quarry/format/wire_requests.h"

#include "schema_codec.h"
#include "wire_bytes.h"
#include "wire_check.h"

namespace quarry::wire {
namespace {

Result<Request> ReadRequest(schema::Request::Reader in) {
  if (in.isHello() && in.getHello().getMagic() != kMagic) {
    return MakeStatus(Code::kCorruption, "a hello that begins with {:#018x} instead of {:#018x}",
                      in.getHello().getMagic(), kMagic);
  }
  Request request;
  QUARRY_RETURN_IF_ERROR(format::ReadRoot<schema::Request>(in, kListedMax, request));
  return request;
}

}  // namespace

Result<std::vector<std::byte>> EncodeRequest(uint64_t id, const Request& request, const Limits& limits) {
  QUARRY_RETURN_IF_ERROR(Check(request, limits));
  const bool hello = std::holds_alternative<Hello>(request);
  const uint32_t bytes_max = hello ? limits.hello_bytes_max : limits.message_bytes_max;
  capnp::MallocMessageBuilder message(FirstSegmentWords(bytes_max));
  auto root = message.initRoot<schema::Request>();
  format::WriteRoot<schema::Request>(request, root);
  if (hello) root.getHello().setMagic(kMagic);
  return FrameOf(id, 0, message, bytes_max, "request");
}

Result<Request> DecodeRequest(const Frame& frame, const Limits& limits) {
  if (frame.id == 0) return MakeStatus(Code::kCorruption, "a request without an id");
  if (frame.fds > 0) {
    return MakeStatus(Code::kCorruption, "request {}: {} file descriptors come with it; none do", frame.id,
                      frame.fds);
  }
  QUARRY_TRY(Request request, (ReadFrame<schema::Request, Request>(frame, limits, "request", ReadRequest)));
  QUARRY_RETURN_IF_ERROR(Check(request, limits));
  return request;
}

}  // namespace quarry::wire
