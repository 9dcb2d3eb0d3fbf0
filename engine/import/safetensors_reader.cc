// .safetensors: tensors one after another behind a JSON header, as Hugging Face's library writes them.
#include <capnp/compat/json.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <set>

#include "array_archive.h"
#include "text_lines.h"

namespace quarry {
namespace {

constexpr uint64_t kLengthBytes = 8;
constexpr uint64_t kHeaderBytesMax = 1 << 20;  // some ten thousand tensors; a graph has a dozen

struct Tensor {
  std::string key;
  std::string dtype;
  std::vector<uint64_t> shape;
  uint64_t begin = 0;  // in the data
  uint64_t end = 0;
};

Status Bad(const std::string& path, std::string_view what) {
  return MakeStatus(Code::kInvalidArgument, "{}: not a readable .safetensors file: {}", path, what);
}

std::string_view ToView(capnp::Text::Reader text) { return {text.begin(), text.size()}; }

// The field's value; null when there is none.
std::optional<capnp::JsonValue::Reader> FieldOf(capnp::JsonValue::Reader object, std::string_view name) {
  for (const auto field : object.getObject()) {
    if (ToView(field.getName()) == name) return field.getValue();
  }
  return std::nullopt;
}

// Counts; nothing when `value` is no array of integers that are not negative.
std::optional<std::vector<uint64_t>> CountsOf(std::optional<capnp::JsonValue::Reader> value) {
  if (!value.has_value() || !value->isArray()) return std::nullopt;
  std::vector<uint64_t> counts;
  for (const auto item : value->getArray()) {
    if (!item.isNumber()) return std::nullopt;
    const double number = item.getNumber();
    if (!(number >= 0) || number >= 0x1p53 || std::trunc(number) != number) return std::nullopt;
    counts.push_back(static_cast<uint64_t>(number));
  }
  return counts;
}

Result<Tensor> ParseTensor(const std::string& path, std::string key, capnp::JsonValue::Reader value) {
  const auto bad = [&](std::string_view what) {
    return Bad(path, fmt::format("tensor '{}' has {}", Excerpt(key), what));
  };
  if (!value.isObject()) return bad("no description");
  const auto dtype = FieldOf(value, "dtype");
  if (!dtype.has_value() || !dtype->isString()) return bad("no dtype");
  auto shape = CountsOf(FieldOf(value, "shape"));
  if (!shape.has_value()) return bad("no readable shape");
  const auto offsets = CountsOf(FieldOf(value, "data_offsets"));
  if (!offsets.has_value() || offsets->size() != 2 || (*offsets)[0] > (*offsets)[1]) {
    return bad("no readable data_offsets");
  }
  return Tensor{.key = std::move(key),
                .dtype = std::string(ToView(dtype->getString())),
                .shape = std::move(*shape),
                .begin = (*offsets)[0],
                .end = (*offsets)[1]};
}

Result<std::vector<Tensor>> ParseHeader(const std::string& path, const std::string& text) {
  std::vector<Tensor> tensors;
  Status status;
  const auto parse = [&]() -> Status {
    capnp::MallocMessageBuilder message;
    auto root = message.getRoot<capnp::JsonValue>();
    capnp::JsonCodec().decodeRaw({text.data(), text.size()}, root);
    if (!root.isObject()) return Bad(path, "its header is no JSON object");
    std::set<std::string> keys;
    for (const auto field : root.asReader().getObject()) {
      const std::string key(ToView(field.getName()));
      if (key == "__metadata__") continue;
      if (!keys.insert(key).second) return Bad(path, fmt::format("it names '{}' twice", Excerpt(key)));
      QUARRY_TRY(Tensor tensor, ParseTensor(path, key, field.getValue()));
      tensors.push_back(std::move(tensor));
    }
    return Status::Ok();
  };
  // Cap'n Proto's JSON reports by throwing; it ends at this door.
  const auto failure = kj::runCatchingExceptions([&] { status = parse(); });
  KJ_IF_MAYBE (exception, failure) {
    return Bad(path, fmt::format("its header is no JSON ({})", exception->getDescription().cStr()));
  }
  QUARRY_RETURN_IF_ERROR(status);
  return tensors;
}

Status CheckPlaces(const std::string& path, std::vector<Tensor> tensors, uint64_t data_bytes) {
  std::sort(tensors.begin(), tensors.end(), [](const Tensor& left, const Tensor& right) {
    return std::pair(left.begin, left.end) < std::pair(right.begin, right.end);
  });
  const Tensor* before = nullptr;
  for (const Tensor& tensor : tensors) {
    if (tensor.end > data_bytes) {
      return MakeStatus(
          Code::kInvalidArgument,
          "{}: is truncated: tensor '{}' ends at byte {} of the data, the file has {}; copy it anew", path,
          Excerpt(tensor.key), tensor.end, data_bytes);
    }
    if (before != nullptr && tensor.begin < before->end) {
      return Bad(path, fmt::format("tensor '{}' begins at byte {}, within '{}', which ends at {}",
                                   Excerpt(tensor.key), tensor.begin, Excerpt(before->key), before->end));
    }
    before = &tensor;
  }
  return Status::Ok();
}

Result<NpyType> TypeOf(const Tensor& tensor, const std::string& name) {
  struct Known {
    std::string_view dtype;
    char kind;
    uint32_t bytes;
  };
  constexpr Known kKnown[] = {{"F64", 'f', 8}, {"F32", 'f', 4}, {"F16", 'f', 2}, {"BF16", 'B', 2},
                              {"I64", 'i', 8}, {"I32", 'i', 4}, {"I16", 'i', 2}, {"I8", 'i', 1},
                              {"U64", 'u', 8}, {"U32", 'u', 4}, {"U16", 'u', 2}, {"U8", 'u', 1},
                              {"BOOL", 'b', 1}};
  for (const Known& known : kKnown) {
    if (known.dtype == tensor.dtype) return NpyType{known.kind, known.bytes, tensor.dtype};
  }
  return MakeStatus(
      Code::kInvalidArgument,
      "{}: dtype '{}' is not one that Quarry reads (F16, BF16, F32, F64, I8 to I64, U8 to U64, BOOL)", name,
      Excerpt(tensor.dtype));
}

Result<NpyArray> OpenTensor(const std::string& path, const Tensor& tensor, uint64_t data_start) {
  NpyArray array{.name = fmt::format("{}: {}", path, Excerpt(tensor.key)), .header = {.shape = tensor.shape}};
  QUARRY_TRY(array.header.type, TypeOf(tensor, array.name));
  QUARRY_TRY(array.header.items, CountItems(tensor.shape, array.header.type, array.name));
  if (array.header.data_bytes() != tensor.end - tensor.begin) {
    return MakeStatus(Code::kInvalidArgument, "{}: has {} bytes, but {} of {} takes {}; write the file anew",
                      array.name, tensor.end - tensor.begin, array.ShapeText(), tensor.dtype,
                      array.header.data_bytes());
  }
  array.open = [path, start = data_start + tensor.begin](uint64_t offset) {
    return OpenPlainFile(path, start + offset);
  };
  return array;
}

}  // namespace

Result<ArrayArchive> OpenSafetensors(const std::string& path) {
  QUARRY_TRY(const uint64_t file_bytes, RegularFileBytes(path));
  QUARRY_TRY(const std::string prefix, ReadPrefix(path, kLengthBytes));
  if (prefix.size() < kLengthBytes) return Bad(path, fmt::format("it ends after {} bytes", prefix.size()));
  uint64_t text_bytes = 0;
  std::memcpy(&text_bytes, prefix.data(), kLengthBytes);
  if (text_bytes > kHeaderBytesMax) {
    return Bad(path,
               fmt::format("it looks like {}, which would be a header of {} bytes, where the most is {}",
                           DescribePrefix(prefix), text_bytes, kHeaderBytesMax));
  }
  if (text_bytes > file_bytes - kLengthBytes) {
    return Bad(path, fmt::format("a header of {} bytes in {} bytes in all", text_bytes, file_bytes));
  }
  QUARRY_TRY(const std::string start, ReadPrefix(path, kLengthBytes + text_bytes));
  QUARRY_TRY(const auto tensors, ParseHeader(path, start.substr(kLengthBytes)));
  const uint64_t data_start = kLengthBytes + text_bytes;
  QUARRY_RETURN_IF_ERROR(CheckPlaces(path, tensors, file_bytes - data_start));
  ArrayArchive archive{.path = path};
  for (const Tensor& tensor : tensors) {
    archive.members.push_back({.key = tensor.key, .open = [path, tensor, data_start] {
                                 return OpenTensor(path, tensor, data_start);
                               }});
  }
  return archive;
}

}  // namespace quarry
