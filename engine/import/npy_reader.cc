#include "npy_reader.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>
#include <limits>

#include "text_lines.h"

namespace quarry {
namespace {

constexpr uint32_t kHeaderTextBytesMax = 1 << 20;
constexpr size_t kRawBytes = 1 << 20;  // a cursor's reads: sequential speed is reached well below this

// The Python dict literal of an .npy header: {'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }
class HeaderText {
 public:
  HeaderText(std::string_view text, const std::string& name) : text_(text), name_(name) {}

  Result<std::string_view> Value(std::string_view key) const {
    const size_t at = text_.find(fmt::format("'{}':", key));
    if (at == std::string_view::npos) return Malformed(fmt::format("lacks '{}'", key));
    std::string_view rest = text_.substr(at + key.size() + 3);
    while (!rest.empty() && rest.front() == ' ') rest.remove_prefix(1);
    return rest;
  }

  Result<std::string> Descr() const {
    QUARRY_TRY(std::string_view rest, Value("descr"));
    if (rest.starts_with("[")) {
      return MakeStatus(Code::kInvalidArgument,
                        "{}: holds a structured array; save its fields as plain arrays of one number type",
                        name_);
    }
    const size_t end = rest.starts_with("'") ? rest.find('\'', 1) : std::string_view::npos;
    if (end == std::string_view::npos) return Malformed("has no readable 'descr'");
    return std::string(rest.substr(1, end - 1));
  }

  Result<bool> Fortran() const {
    QUARRY_TRY(const std::string_view rest, Value("fortran_order"));
    if (rest.starts_with("True")) return true;
    if (rest.starts_with("False")) return false;
    return Malformed("has no readable 'fortran_order'");
  }

  Result<std::vector<uint64_t>> Shape() const {
    QUARRY_TRY(std::string_view rest, Value("shape"));
    const size_t end = rest.find(')');
    if (!rest.starts_with("(") || end == std::string_view::npos) return Malformed("has no readable 'shape'");
    rest = rest.substr(1, end - 1);
    std::vector<uint64_t> shape;
    while (!rest.empty()) {
      if (rest.front() == ' ' || rest.front() == ',' || rest.front() == 'L') {  // 'L': written by Python 2
        rest.remove_prefix(1);
        continue;
      }
      uint64_t extent = 0;
      const auto [next, error] = std::from_chars(rest.data(), rest.data() + rest.size(), extent);
      if (error != std::errc()) return Malformed("has no readable 'shape'");
      shape.push_back(extent);
      rest.remove_prefix(static_cast<size_t>(next - rest.data()));
    }
    return shape;
  }

 private:
  Status Malformed(std::string_view what) const {
    return MakeStatus(Code::kInvalidArgument, "{}: the .npy header {}: {}", name_, what, Excerpt(text_));
  }
  std::string_view text_;
  const std::string& name_;
};

template <typename T>
void Widen(std::span<const std::byte> raw, std::span<int64_t> out) {
  for (size_t i = 0; i < out.size(); i++) {
    T value;
    std::memcpy(&value, raw.data() + i * sizeof(T), sizeof(T));
    out[i] = static_cast<int64_t>(value);  // NOLINT(bugprone-signed-char-misuse): an int8 here is a number
  }
}

template <typename T>
void ToFloat(std::span<const std::byte> raw, std::span<float> out) {
  for (size_t i = 0; i < out.size(); i++) {
    T value;
    std::memcpy(&value, raw.data() + i * sizeof(T), sizeof(T));
    out[i] = static_cast<float>(value);
  }
}

Status EndsEarly(const std::string& name, uint64_t item) {
  return MakeStatus(Code::kInvalidArgument, "{}: ends at element {} although its header promises more", name,
                    item);
}

}  // namespace

std::string NpyArray::ShapeText() const { return fmt::format("[{}]", fmt::join(header.shape, ", ")); }

Result<NpyType> ParseNpyType(const std::string& descr, const std::string& name) {
  if (descr == "O" || descr == "|O") {
    return MakeStatus(Code::kInvalidArgument,
                      "{}: holds pickled Python objects (dtype object), which are never unpickled; save it "
                      "as a number type",
                      name);
  }
  if (descr.starts_with('>')) {
    return MakeStatus(
        Code::kInvalidArgument,
        "{}: dtype '{}' is big-endian; save it little-endian, as a.astype(a.dtype.newbyteorder('<'))", name,
        Excerpt(descr));
  }
  std::string_view rest = descr;
  if (!rest.empty() && (rest.front() == '<' || rest.front() == '|' || rest.front() == '='))
    rest.remove_prefix(1);
  NpyType type{.name = descr};
  if (!rest.empty()) type.kind = rest.front();
  const char* end = rest.data() + rest.size();
  const bool sized = rest.size() > 1 && std::from_chars(rest.data() + 1, end, type.bytes).ptr == end;
  const bool power = type.bytes == 1 || type.bytes == 2 || type.bytes == 4 || type.bytes == 8;
  bool known = false;
  if (type.kind == 'f') known = power && type.bytes != 1;
  if (type.kind == 'i' || type.kind == 'u') known = power;
  if (type.kind == 'b') known = type.bytes == 1;
  if (type.kind == 'S' || type.kind == 'U') known = type.bytes >= 1 && type.bytes <= 4096;
  if (type.kind == 'U') type.bytes *= 4;  // UCS-4
  if (!sized || !known) {
    return MakeStatus(Code::kInvalidArgument,
                      "{}: dtype '{}' is not one that Quarry reads (f2, f4, f8, i1 to i8, u1 to u8, bool)",
                      name, Excerpt(descr));
  }
  return type;
}

Result<uint64_t> CountItems(const std::vector<uint64_t>& shape, const NpyType& type,
                            const std::string& name) {
  uint64_t items = 1;
  for (const uint64_t extent : shape) {
    if (extent != 0 && items > (uint64_t{1} << 62) / extent / type.bytes) {
      return MakeStatus(Code::kInvalidArgument, "{}: shape [{}] is larger than 2^62 bytes", name,
                        fmt::join(shape, ", "));
    }
    items *= extent;
  }
  return items;
}

Result<NpyHeader> ReadNpyHeader(ByteSource& source, uint64_t stream_bytes, const std::string& name) {
  const auto bad = [&](std::string_view what) {
    return MakeStatus(Code::kInvalidArgument, "{}: not a readable .npy array: {}", name, what);
  };
  std::string start(kNpyMagic.size() + 6, '\0');
  QUARRY_TRY(const size_t got, source.Read(std::as_writable_bytes(std::span(start))));
  start.resize(got);
  if (!start.starts_with(kNpyMagic)) return bad("it looks like " + DescribePrefix(start));
  if (got < kNpyMagic.size() + 6) return bad(fmt::format("it ends after {} bytes", got));
  const auto byte_at = [&start](size_t i) {
    return static_cast<uint32_t>(static_cast<unsigned char>(start[i]));
  };
  const uint32_t version = byte_at(6);
  if (version < 1 || version > 3) return bad(fmt::format("format version {} (1 to 3 are known)", version));
  // Version 1 has a two-byte length, so that two bytes of the text have been read already.
  const size_t text_at = version == 1 ? 10 : 12;
  uint32_t text_bytes = byte_at(8) | byte_at(9) << 8;
  if (version > 1) text_bytes |= byte_at(10) << 16 | byte_at(11) << 24;
  if (text_bytes < 12 || text_bytes > kHeaderTextBytesMax || text_at + text_bytes > stream_bytes) {
    return bad(fmt::format("a header of {} bytes in {} bytes in all", text_bytes, stream_bytes));
  }
  std::string text = start.substr(text_at);
  const size_t have = text.size();
  text.resize(text_bytes);
  QUARRY_TRY(const size_t more, source.Read(std::as_writable_bytes(std::span(text).subspan(have))));
  if (have + more < text_bytes) return bad("it ends within its header");

  const HeaderText header_text(text, name);
  QUARRY_TRY(const std::string descr, header_text.Descr());
  NpyHeader header;
  QUARRY_TRY(header.type, ParseNpyType(descr, name));
  QUARRY_TRY(header.shape, header_text.Shape());
  QUARRY_TRY(const bool fortran, header_text.Fortran());
  const auto is_long = [](uint64_t extent) { return extent > 1; };
  header.fortran = fortran && std::ranges::count_if(header.shape, is_long) > 1;
  if (header.fortran && header.shape.size() > 2) {
    return MakeStatus(Code::kInvalidArgument,
                      "{}: is in Fortran order (columns first); save it with np.ascontiguousarray", name);
  }
  header.header_bytes = text_at + text_bytes;
  QUARRY_TRY(header.items, CountItems(header.shape, header.type, name));
  if (header.header_bytes + header.data_bytes() > stream_bytes) {
    return MakeStatus(Code::kInvalidArgument,
                      "{}: is truncated: shape [{}] of '{}' needs {} bytes, the file has {}; copy it anew",
                      name, fmt::join(header.shape, ", "), descr, header.header_bytes + header.data_bytes(),
                      stream_bytes);
  }
  return header;
}

Result<NpyArray> OpenNpy(const std::string& path) {
  QUARRY_TRY(const uint64_t file_bytes, RegularFileBytes(path));
  QUARRY_TRY(const auto source, OpenPlainFile(path, 0));
  NpyArray array{.name = path};
  QUARRY_TRY(array.header, ReadNpyHeader(*source, file_bytes, path));
  array.open = [path, start = array.header.header_bytes](uint64_t offset) {
    return OpenPlainFile(path, start + offset);
  };
  ReadRowsFirst(array);
  return array;
}

Result<NpyArray> OpenRawArray(const std::string& path, const NpyType& type, std::vector<uint64_t> shape,
                              std::string_view stated_by) {
  NpyArray array{.name = path, .header = {.type = type, .shape = std::move(shape)}};
  QUARRY_TRY(array.header.items, CountItems(array.header.shape, type, path));
  QUARRY_TRY(const uint64_t file_bytes, RegularFileBytes(path));
  if (file_bytes != array.header.data_bytes()) {
    return MakeStatus(Code::kInvalidArgument, "{}: has {} bytes, but {} of '{}' takes {}; look into {}", path,
                      file_bytes, array.ShapeText(), type.name, array.header.data_bytes(), stated_by);
  }
  array.open = [path](uint64_t offset) { return OpenPlainFile(path, offset); };
  return array;
}

Result<std::unique_ptr<IntCursor>> IntCursor::Open(const NpyArray& array, uint64_t first, uint64_t count,
                                                   IntRole role) {
  const NpyType& type = array.header.type;
  if (role == IntRole::kId && type.kind == 'f') {
    return MakeStatus(Code::kInvalidArgument,
                      "{}: node ids have the float dtype '{}'; save them as int64 (NaN is no node id)",
                      array.name, type.name);
  }
  if (!type.is_integer() && !(role == IntRole::kLabel && type.kind == 'f' && type.bytes >= 4)) {
    return MakeStatus(Code::kInvalidArgument, "{}: dtype '{}' holds no integers; save it as int64",
                      array.name, type.name);
  }
  std::unique_ptr<IntCursor> cursor(new IntCursor);
  QUARRY_TRY(cursor->source_, array.open(first * type.bytes));
  cursor->type_ = type;
  cursor->role_ = role;
  cursor->name_ = array.name;
  cursor->item_ = first;
  cursor->left_ = count;
  cursor->raw_.resize(std::max<uint64_t>(8, std::min<uint64_t>(kRawBytes, count * type.bytes)));
  return cursor;
}

Result<size_t> IntCursor::Read(std::span<int64_t> out) {
  size_t filled = 0;
  const size_t raw_items = raw_.size() / type_.bytes;
  while (filled < out.size() && left_ > 0) {
    const size_t n = std::min<uint64_t>({raw_items, out.size() - filled, left_});
    const std::span<std::byte> raw(raw_.data(), n * type_.bytes);
    QUARRY_TRY(const size_t got, source_->Read(raw));
    if (got < raw.size()) return EndsEarly(name_, item_ + got / type_.bytes);
    QUARRY_RETURN_IF_ERROR(Convert(raw, out.subspan(filled, n)));
    filled += n;
    item_ += n;
    left_ -= n;
  }
  return filled;
}

Status IntCursor::Convert(std::span<const std::byte> raw, std::span<int64_t> out) const {
  switch (type_.kind) {
    case 'i':
      if (type_.bytes == 1) Widen<int8_t>(raw, out);
      if (type_.bytes == 2) Widen<int16_t>(raw, out);
      if (type_.bytes == 4) Widen<int32_t>(raw, out);
      if (type_.bytes == 8) std::memcpy(out.data(), raw.data(), raw.size());
      if (role_ == IntRole::kLabel && type_.bytes == 4) {
        std::replace(out.begin(), out.end(), int64_t{std::numeric_limits<int32_t>::min()}, int64_t{-1});
      }
      return Status::Ok();
    case 'u':
      if (type_.bytes == 1) Widen<uint8_t>(raw, out);
      if (type_.bytes == 2) Widen<uint16_t>(raw, out);
      if (type_.bytes == 4) Widen<uint32_t>(raw, out);
      if (type_.bytes < 8) return Status::Ok();
      std::memcpy(out.data(), raw.data(), raw.size());
      for (size_t i = 0; i < out.size(); i++) {
        if (out[i] < 0) {
          return MakeStatus(Code::kInvalidArgument, "{}: element {} is {}, beyond 2^63", name_, item_ + i,
                            static_cast<uint64_t>(out[i]));
        }
      }
      return Status::Ok();
    default:
      break;
  }
  for (size_t i = 0; i < out.size(); i++) {
    double value = 0;
    if (type_.bytes == 4) {
      float narrow;
      std::memcpy(&narrow, raw.data() + i * 4, 4);
      value = static_cast<double>(narrow);
    } else {
      std::memcpy(&value, raw.data() + i * 8, 8);
    }
    if (std::isnan(value)) {
      out[i] = -1;
    } else if (std::trunc(value) == value && std::abs(value) < 0x1p53) {
      out[i] = static_cast<int64_t>(value);
    } else {
      return MakeStatus(Code::kInvalidArgument, "{}: element {} is {}, which is no integer", name_, item_ + i,
                        value);
    }
  }
  return Status::Ok();
}

Result<std::unique_ptr<FloatCursor>> FloatCursor::Open(const NpyArray& array) {
  const NpyType& type = array.header.type;
  const bool number = type.is_integer() || type.kind == 'b' || (type.kind == 'f' && type.bytes >= 4);
  if (!number) {
    return MakeStatus(Code::kInvalidArgument, "{}: dtype '{}' cannot be read as float32; save it as float32",
                      array.name, type.name);
  }
  std::unique_ptr<FloatCursor> cursor(new FloatCursor);
  QUARRY_TRY(cursor->source_, array.open(0));
  cursor->type_ = type;
  cursor->name_ = array.name;
  cursor->left_ = array.header.items;
  cursor->raw_.resize(std::max<uint64_t>(8, std::min<uint64_t>(kRawBytes, array.header.data_bytes())));
  return cursor;
}

Result<size_t> FloatCursor::Read(std::span<float> out) {
  size_t filled = 0;
  const size_t raw_items = raw_.size() / type_.bytes;
  while (filled < out.size() && left_ > 0) {
    const size_t n = std::min<uint64_t>({raw_items, out.size() - filled, left_});
    const std::span<std::byte> raw(raw_.data(), n * type_.bytes);
    QUARRY_TRY(const size_t got, source_->Read(raw));
    if (got < raw.size()) return EndsEarly(name_, filled + got / type_.bytes);
    const std::span<float> part = out.subspan(filled, n);
    if (type_.kind == 'f') type_.bytes == 4 ? ToFloat<float>(raw, part) : ToFloat<double>(raw, part);
    if (type_.kind == 'b') ToFloat<uint8_t>(raw, part);
    if (type_.kind == 'i') {
      if (type_.bytes == 1) ToFloat<int8_t>(raw, part);
      if (type_.bytes == 2) ToFloat<int16_t>(raw, part);
      if (type_.bytes == 4) ToFloat<int32_t>(raw, part);
      if (type_.bytes == 8) ToFloat<int64_t>(raw, part);
    }
    if (type_.kind == 'u') {
      if (type_.bytes == 1) ToFloat<uint8_t>(raw, part);
      if (type_.bytes == 2) ToFloat<uint16_t>(raw, part);
      if (type_.bytes == 4) ToFloat<uint32_t>(raw, part);
      if (type_.bytes == 8) ToFloat<uint64_t>(raw, part);
    }
    filled += n;
    left_ -= n;
  }
  return filled;
}

}  // namespace quarry
