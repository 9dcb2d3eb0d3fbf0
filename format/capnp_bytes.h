// Cap'n Proto messages as plain bytes, and its exceptions as Status. Private to this room.
#pragma once

#include <capnp/message.h>
#include <capnp/serialize.h>
#include <kj/exception.h>

#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "quarry/base/status.h"
#include "quarry/format/road_spec.h"

namespace quarry {

inline std::vector<std::byte> MessageBytes(capnp::MessageBuilder& message) {
  const kj::Array<capnp::word> words = capnp::messageToFlatArray(message);
  const auto bytes = words.asBytes();
  std::vector<std::byte> out(bytes.size());
  std::memcpy(out.data(), bytes.begin(), bytes.size());
  return out;
}

// Hands the root of the message in `bytes` to `read` (Root::Reader -> Result<T>). kCorruption, naming `path`
// and `what`, when the bytes are no such message: Cap'n Proto throws on bad pointers wherever they are
// followed.
template <typename Root, typename T, typename Read>
Result<T> ReadMessage(std::span<const std::byte> bytes, std::string_view path, std::string_view what,
                      Read read) {
  // Copied to aligned words, which the reader requires. A tail shorter than a word belongs to no message.
  kj::Array<capnp::word> words = kj::heapArray<capnp::word>(bytes.size() / sizeof(capnp::word));
  if (words.size() > 0) std::memcpy(words.begin(), bytes.data(), words.size() * sizeof(capnp::word));
  Result<T> result = MakeStatus(Code::kInternal, "{}: {} was not read", path, what);
  const auto failure = kj::runCatchingExceptions([&] {
    capnp::FlatArrayMessageReader message(words);
    result = read(message.getRoot<Root>());
  });
  KJ_IF_MAYBE (exception, failure) {
    return MakeStatus(Code::kCorruption, "{}: its {} ({} bytes) cannot be decoded: {}", path, what,
                      bytes.size(), exception->getDescription().cStr());
  }
  return result;
}

inline std::string ToString(capnp::Text::Reader text) { return std::string(text.begin(), text.size()); }
inline capnp::Text::Reader ToText(const std::string& text) { return {text.c_str(), text.size()}; }

// An enum that has names, as one of them; kUnsupported for a name that this Quarry does not know.
inline std::string ToText(NamedEnum auto value) { return std::string(NameOf(value)); }
template <NamedEnum Enum>
Status FromText(capnp::Text::Reader text, Enum& out) {
  const auto value = ParseName<Enum>({text.begin(), text.size()});
  if (!value.ok()) return Status(Code::kUnsupported, std::string(value.status().message()));
  out = *value;
  return Status::Ok();
}

}  // namespace quarry
