#include "quarry/objects/remote_manifest.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <set>

#include "quarry/base/text.h"
#include "quarry/base/units.h"
#include "quarry/format/checksum.h"

namespace quarry {
namespace {

constexpr std::string_view kFirstLine = "quarry-objects 1";
constexpr std::string_view kChecksumName = "checksum ";
constexpr size_t kHexDigits = 16;

// The lines of a manifest, one behind the other.
class ManifestLines {
 public:
  ManifestLines(std::string_view text, std::string_view source) : text_(text), source_(source) {}

  bool done() const { return text_.empty(); }
  // The rest of the next line, which begins with `name` and a blank.
  Result<std::string_view> Take(std::string_view name) {
    ++line_;
    const size_t end = text_.find('\n');
    const std::string_view line = text_.substr(0, end);
    if (end == std::string_view::npos || !line.starts_with(name) || line.size() <= name.size() ||
        line[name.size()] != ' ') {
      return Fault(fmt::format("no '{}'", name));
    }
    text_.remove_prefix(end + 1);
    return line.substr(name.size() + 1);
  }
  Result<uint64_t> TakeNumber(std::string_view name) {
    QUARRY_TRY(const std::string_view text, Take(name));
    return Number(text, 10);
  }
  Result<uint64_t> Number(std::string_view text, int base) const {
    uint64_t number = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number, base);
    if (error != std::errc() || end != text.data() + text.size()) {
      return Fault(fmt::format("'{}' is no number", Printable(text)));
    }
    return number;
  }
  Status Fault(std::string_view what) const {
    return MakeStatus(Code::kCorruption, "{}: line {}: {}", source_, line_, what);
  }

 private:
  std::string_view text_;
  const std::string_view source_;
  size_t line_ = 1;  // the first was taken
};

// A name stays below the folder that it is relative to, wherever the manifest came from.
bool IsSafeName(std::string_view name) {
  if (name.empty() || name.size() > 1024 || name.front() == '/') return false;
  for (std::string_view rest = name; !rest.empty();) {
    const size_t end = std::min(rest.find('/'), rest.size());
    const std::string_view part = rest.substr(0, end);
    if (part.empty() || part == "." || part == "..") return false;
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  return name.back() != '/' &&
         std::none_of(name.begin(), name.end(), [](char c) { return static_cast<unsigned char>(c) < 0x20; });
}

// Checksums of 16 digits each.
Status TakeBlocks(ManifestLines& lines, RemoteFile& file) {
  if (file.bytes == 0) return Status::Ok();
  QUARRY_TRY(std::string_view digits, lines.Take("blocks"));
  if (digits.size() != kHexDigits * CeilDiv(file.bytes, kRemoteBlockBytes)) {
    return lines.Fault(fmt::format("{} digits for blocks of {} bytes", digits.size(), file.bytes));
  }
  for (; !digits.empty(); digits.remove_prefix(kHexDigits)) {
    QUARRY_TRY(const uint64_t block, lines.Number(digits.substr(0, kHexDigits), 16));
    file.blocks.push_back(block);
  }
  return Status::Ok();
}

uint64_t TextChecksum(std::string_view text) { return Checksum64(std::as_bytes(std::span(text))); }

}  // namespace

uint64_t RemoteFile::BlockBytes(size_t block) const {
  return std::min(kRemoteBlockBytes, bytes - block * kRemoteBlockBytes);
}

uint64_t RemoteFile::Digest() const { return Checksum64(std::as_bytes(std::span(blocks))); }

std::string RemoteFile::Key() const { return fmt::format("data/{:016x}-{}", Digest(), bytes); }

Status RemoteFile::Check(size_t block, std::span<const std::byte> content) const {
  const uint64_t found = Checksum64(content);
  if (found == blocks[block]) return Status::Ok();
  return MakeStatus(Code::kCorruption, "{}: block {}: checksum {:016x} instead of {:016x}", name, block,
                    found, blocks[block]);
}

uint64_t RemoteManifest::bytes() const {
  uint64_t sum = 0;
  for (const RemoteFile& file : files) sum += file.bytes;
  return sum;
}

std::string EncodeRemoteManifest(const RemoteManifest& manifest) {
  std::string text =
      fmt::format("{}\ndatabase {}\npublication {}\npublished {}\ntimestamp {}\nblock_bytes {}\nfiles {}\n",
                  kFirstLine, manifest.database_id, manifest.publication, manifest.published_utc,
                  manifest.timestamp, kRemoteBlockBytes, manifest.files.size());
  for (const RemoteFile& file : manifest.files) {
    text += fmt::format("file {} {}\n", file.bytes, file.name);
    if (file.blocks.empty()) continue;
    text += "blocks ";
    for (const uint64_t block : file.blocks) text += fmt::format("{:016x}", block);
    text += '\n';
  }
  return text + fmt::format("{}{:016x}\n", kChecksumName, TextChecksum(text));
}

Result<RemoteManifest> DecodeRemoteManifest(std::string_view text, std::string_view source) {
  const size_t first = text.find('\n');
  const std::string_view version = text.substr(0, std::min(first, text.size()));
  if (version != kFirstLine) {
    const bool other = version.starts_with("quarry-objects ") && version.size() < 40;
    return MakeStatus(other ? Code::kUnsupported : Code::kCorruption,
                      "{}: begins with '{}', and not with '{}'", source, Printable(version.substr(0, 40)),
                      kFirstLine);
  }
  const size_t last_bytes = kChecksumName.size() + kHexDigits + 1;
  if (text.size() < last_bytes + first) return MakeStatus(Code::kCorruption, "{}: cut off", source);
  const std::string_view body = text.substr(0, text.size() - last_bytes);
  if (text.substr(body.size()) != fmt::format("{}{:016x}\n", kChecksumName, TextChecksum(body))) {
    return MakeStatus(Code::kCorruption, "{}: its checksum does not hold", source);
  }
  ManifestLines lines(body.substr(first + 1), source);
  RemoteManifest manifest;
  QUARRY_TRY(manifest.database_id, lines.Take("database"));
  QUARRY_TRY(manifest.publication, lines.Take("publication"));
  QUARRY_TRY(manifest.published_utc, lines.Take("published"));
  QUARRY_TRY(manifest.timestamp, lines.TakeNumber("timestamp"));
  QUARRY_TRY(const uint64_t block_bytes, lines.TakeNumber("block_bytes"));
  if (block_bytes != kRemoteBlockBytes) {
    return MakeStatus(Code::kUnsupported, "{}: blocks of {} bytes; this version reads those of {}", source,
                      block_bytes, kRemoteBlockBytes);
  }
  QUARRY_TRY(const uint64_t count, lines.TakeNumber("files"));
  std::set<std::string> names;
  for (uint64_t i = 0; i < count; i++) {
    QUARRY_TRY(const std::string_view line, lines.Take("file"));
    const size_t blank = std::min(line.find(' '), line.size() - 1);
    RemoteFile file{.name = std::string(line.substr(blank + 1))};
    QUARRY_TRY(file.bytes, lines.Number(line.substr(0, blank), 10));
    if (!IsSafeName(file.name))
      return lines.Fault(fmt::format("'{}' is no name of a file", Printable(file.name)));
    if (!names.insert(file.name).second) return lines.Fault(fmt::format("{} for the second time", file.name));
    QUARRY_RETURN_IF_ERROR(TakeBlocks(lines, file));
    manifest.files.push_back(std::move(file));
  }
  if (!lines.done()) return lines.Fault("more than the files");
  return manifest;
}

}  // namespace quarry
