// Fuzz target: what a peer may send. Its bytes as a stream of frames, decoded as requests and as answers, and
// as a batch in shared memory, and as rows of SQL. What decodes must encode again, and a batch that opens
// must lie in its slot.
//
// clang with -DQUARRY_FUZZ=ON: a libFuzzer program. Any compiler: fuzz_wire_replay, which runs the corpus.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <new>
#include <span>

#include "quarry/format/wire.h"
#include "quarry/format/wire_batch.h"
#include "quarry/format/wire_sql.h"

namespace quarry::wire {
namespace {

void Require(bool holds) {
  if (!holds) std::abort();
}

void DecodeFrames(std::span<const std::byte> bytes) {
  const Limits limits;
  FrameDecoder decoder(limits);
  decoder.HandshakeDone(limits.message_bytes_max);
  while (true) {
    const auto frame = decoder.Next(bytes);
    if (!frame.ok() || !frame->has_value()) return;
    // What shares its parts grows as it is written anew, and may then be too large.
    if ((*frame)->message.size() > limits.message_bytes_max / 4) continue;
    const auto request = DecodeRequest(**frame);
    Require(!request.ok() || EncodeRequest((*frame)->id, *request).ok());
    const auto response = DecodeResponse(**frame);
    Require(!response.ok() || EncodeResponse((*frame)->id, *response).ok());
  }
}

// The first two bytes say how many columns there are, and how long the pages.
void DecodeRows(std::span<const std::byte> bytes) {
  if (bytes.size() < 2) return;
  SqlRowReader reader(std::to_integer<size_t>(bytes[0]) % 16);
  const size_t page_bytes = 1 + std::to_integer<size_t>(bytes[1]);
  (void)ReadSqlValues(bytes.subspan(2), std::to_integer<uint32_t>(bytes[0]));
  for (bytes = bytes.subspan(2); !bytes.empty();) {
    const size_t page = std::min(bytes.size(), page_bytes);
    reader.Add(bytes.first(page));
    bytes = bytes.subspan(page);
    while (true) {
      const auto row = reader.Next();
      if (!row.ok()) return;
      if (!*row) break;
    }
  }
}

// Loads that the compiler may not leave out.
template <typename T>
void Touch(std::span<T> array) {
  for (const std::byte& byte : std::as_bytes(array)) (void)*static_cast<const volatile std::byte*>(&byte);
}

void DecodeBatch(std::span<const std::byte> bytes) {
  constexpr std::align_val_t kAlignment{kBatchAlignment};
  auto* memory = static_cast<std::byte*>(::operator new(bytes.size(), kAlignment));
  if (!bytes.empty()) std::memcpy(memory, bytes.data(), bytes.size());
  const auto batch = OpenBatch({memory, bytes.size()});
  if (batch.ok()) {
    Touch(batch->indptr);
    Touch(batch->indices);
    Touch(batch->nodes);
    Touch(batch->labels);
    Touch(batch->features.slots);
    Touch(batch->features.rows);
    Touch(batch->edge_ids);
    Touch(batch->relations);
    Touch(batch->type_rows);
    (void)CheckBatch(*batch);
  }
  ::operator delete(memory, kAlignment);
}

}  // namespace
}  // namespace quarry::wire

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto bytes = std::as_bytes(std::span(data, size));
  quarry::wire::DecodeFrames(bytes);
  quarry::wire::DecodeRows(bytes);
  quarry::wire::DecodeBatch(bytes);
  return 0;
}
