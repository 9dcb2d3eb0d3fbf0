#include "quarry/format/named_tensor.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstring>

#include "quarry/base/json.h"

namespace quarry {

std::string NamedTensor::ShapeText() const { return fmt::format("[{}]", fmt::join(shape, ", ")); }

std::vector<std::byte> EncodeSafetensorsHeader(
    std::span<const NamedTensor> tensors,
    std::span<const std::pair<std::string_view, std::string_view>> notes) {
  std::string text = R"({"__metadata__":{)";
  for (size_t i = 0; i < notes.size(); i++) {
    text +=
        fmt::format("{}{}:{}", i == 0 ? "" : ",", JsonString(notes[i].first), JsonString(notes[i].second));
  }
  text += "}";
  uint64_t at = 0;
  for (const NamedTensor& tensor : tensors) {
    const uint64_t end = at + tensor.values.size() * sizeof(float);
    text += fmt::format(R"(,{}:{{"dtype":"F32","shape":[{}],"data_offsets":[{},{}]}})",
                        JsonString(tensor.name), fmt::join(tensor.shape, ","), at, end);
    at = end;
  }
  text += "}";
  text.resize((text.size() + 7) / 8 * 8, ' ');
  const uint64_t length = text.size();
  std::vector<std::byte> header(sizeof(length) + length);
  std::memcpy(header.data(), &length, sizeof(length));
  std::memcpy(header.data() + sizeof(length), text.data(), length);
  return header;
}

}  // namespace quarry
