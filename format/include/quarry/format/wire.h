// The local protocol as pure functions over bytes: frames on a stream socket, and the messages in them
// (docs/protocol.md). Whatever arrives comes from a stranger: nothing is allocated, followed or believed
// before it is checked.
//
//   frame    header, 16 bytes, little-endian | message: Cap'n Proto, standard segment framing (wire.capnp)
//              0  uint32  bytes of the message, a multiple of 8
//              4  uint32  file descriptors that come with the frame
//              8  uint64  request id: from 1, chosen by the client; the answer has the same; 0: of the
//                         connection, by the server alone
//
// Errors tell what to do next. After kUsage or kCorruption from a FrameDecoder, or kCorruption from a decode,
// the peer does not speak the protocol and the connection has to be closed. With kInvalidArgument or
// kUnsupported from DecodeRequest, the request is refused and the connection goes on.
//
// Values and free functions: thread-safe; a FrameDecoder belongs to one connection and one thread at a time.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "quarry/base/status.h"
#include "quarry/format/wire_requests.h"
#include "quarry/format/wire_responses.h"

namespace quarry::wire {

inline constexpr uint16_t kProtocolVersion = 1;
inline constexpr size_t kFrameHeaderBytes = 16;

// Bounds that hold for every connection and that no peer can change.
inline constexpr size_t kNameBytesMax = 64;
inline constexpr size_t kFailureBytesMax = 1024;  // longer sentences are cut
inline constexpr uint32_t kFanoutMax = 1024;
inline constexpr uint32_t kTypedFanoutMax = 4096;  // of a hop, where fanouts are by type of edges
inline constexpr uint32_t kHopsMax = 8;
inline constexpr uint32_t kDimMax = 1 << 24;
inline constexpr uint64_t kRegionBytesMax = uint64_t{1} << 46;
inline constexpr uint32_t kListedMax = 1024;  // tables, layouts, counters of an answer; leases of a request
inline constexpr size_t kSettingsBytesMax = 4096;              // settings of a training run
inline constexpr size_t kConfigBytesMax = 32 << 10;            // text of what it was started with
inline constexpr uint64_t kStateBytesMax = uint64_t{1} << 30;  // its state
inline constexpr size_t kPathBytesMax = 4096;                  // of a folder
inline constexpr uint64_t kManifestBytesMax = uint64_t{1} << 30;
inline constexpr uint64_t kEdgeBytes = 12;
inline constexpr uint32_t kLeaseAlignment = 4096;
inline constexpr uint32_t kRangeAlignment = 8;

// The limits of what a peer accepts. The defaults are the protocol's; the handshake may change the second.
struct Limits {
  uint32_t hello_bytes_max = 4096;       // a message before the handshake: a stranger gets no more
  uint32_t message_bytes_max = 1 << 20;  // and after it
  uint32_t segments_max = 8;
  uint32_t nesting_max = 16;
  uint32_t fds_max = 16;           // that come with a frame
  uint32_t outstanding_max = 64;   // requests without an answer
  uint32_t ids_max = 1 << 20;      // ids or rows of a request
  uint32_t members_max = 1 << 10;  // members of a group

  // Most words that following a message's pointers may visit: twice its own, since pointers may share a
  // target.
  uint64_t traversal_words(uint64_t message_bytes) const { return message_bytes / 8 * 2 + 64; }
};

struct Frame {
  uint64_t id = 0;
  uint32_t fds = 0;
  std::vector<std::byte> message;
};

// Cuts a stream of bytes into frames. It holds one message, whose memory grows as its bytes arrive: at most
// twice what was received, and never more than the limit, whatever a header claims.
class FrameDecoder {
 public:
  // Takes messages of up to limits.hello_bytes_max until the handshake is done.
  explicit FrameDecoder(const Limits& limits) : limits_(limits), bytes_max_(limits.hello_bytes_max) {}
  // Applies the agreed `message_bytes_max` from the next frame on.
  void HandshakeDone(uint32_t message_bytes_max) { bytes_max_ = message_bytes_max; }

  // Takes bytes off the front of `bytes`. Returns the next frame once its last byte is there, and nothing
  // when all bytes are taken before that. After an error it returns the same error for ever.
  Result<std::optional<Frame>> Next(std::span<const std::byte>& bytes);

 private:
  Status ReadHeader();

  const Limits limits_;
  uint32_t bytes_max_;
  std::array<std::byte, kFrameHeaderBytes> header_{};
  size_t header_bytes_ = 0;
  uint32_t message_bytes_ = 0;
  Frame frame_;
  Status fault_;
};

// Returns a whole frame. kInvalidArgument when DecodeRequest would refuse the request, or when it is too
// large. REQUIRES: id > 0.
Result<std::vector<std::byte>> EncodeRequest(uint64_t id, const Request& request, const Limits& limits = {});
Result<Request> DecodeRequest(const Frame& frame, const Limits& limits = {});
// The reason for which both of them refuse one of Request's alternatives.
template <typename T>
Status CheckRequest(const T& request, const Limits& limits = {});

// Returns a whole frame; as many descriptors as the answer has regions have to be sent with it. `limits` are
// the client's.
Result<std::vector<std::byte>> EncodeResponse(uint64_t id, const Response& response,
                                              const Limits& limits = {});
// kCorruption; kUnsupported for a kind of answer that this Quarry does not know.
Result<Response> DecodeResponse(const Frame& frame, const Limits& limits = {});

// The newest version that both sides speak. kUnsupported names both ranges.
Result<uint16_t> AgreeVersion(const Hello& hello);

// OK when the range lies in a region of `region_bytes`. kInvalidArgument otherwise.
Status CheckRange(const Range& range, uint64_t region_bytes);

// Converts `status` to a failure, its sentence cut to what a message may hold, and back.
Failure ToFailure(const Status& status);
Status ToStatus(const Failure& failure);

}  // namespace quarry::wire
