// .npz: a zip archive whose members are .npy arrays.
#include <algorithm>

#include "array_archive.h"
#include "text_lines.h"
#include "zip_file.h"

namespace quarry {
namespace {

Result<NpyArray> OpenMember(const std::string& path, const std::string& key, const ZipMember& member) {
  NpyArray array{.name = fmt::format("{}: {}", path, Excerpt(key))};
  QUARRY_TRY(const auto source, OpenZipMember(path, member, array.name, 0));
  QUARRY_TRY(array.header, ReadNpyHeader(*source, member.bytes, array.name));
  array.open = [path, member, name = array.name, start = array.header.header_bytes](uint64_t offset) {
    return OpenZipMember(path, member, name, start + offset);
  };
  ReadRowsFirst(array);
  return array;
}

}  // namespace

Result<ArrayArchive> OpenNpz(const std::string& path) {
  QUARRY_TRY(const auto members, ListZip(path));
  ArrayArchive npz{.path = path};
  for (const ZipMember& member : members) {
    constexpr std::string_view kSuffix = ".npy";
    if (!member.name.ends_with(kSuffix)) continue;
    const std::string key = member.name.substr(0, member.name.size() - kSuffix.size());
    npz.members.push_back(
        {.key = key, .open = [path, key, member] { return OpenMember(path, key, member); }});
  }
  return npz;
}

Result<std::string> ReadTag(const NpyArray& array) {
  const NpyType& type = array.header.type;
  if ((type.kind != 'S' && type.kind != 'U') || array.header.items != 1) {
    return MakeStatus(Code::kInvalidArgument, "{}: expected one short string, found shape {} of '{}'",
                      array.name, array.ShapeText(), type.name);
  }
  std::string raw(type.bytes, '\0');
  QUARRY_TRY(const auto source, array.open(0));
  QUARRY_TRY(const size_t got, source->Read(std::as_writable_bytes(std::span(raw))));
  raw.resize(got);
  std::erase(raw, '\0');  // the padding of 'S', and the upper bytes of 'U' for ASCII
  return raw;
}

}  // namespace quarry
