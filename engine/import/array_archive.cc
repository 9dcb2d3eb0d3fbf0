#include "array_archive.h"

#include <algorithm>

#include "text_lines.h"

namespace quarry {

bool ArrayArchive::Has(std::string_view key) const {
  return std::any_of(members.begin(), members.end(),
                     [key](const Member& member) { return member.key == key; });
}

std::string ArrayArchive::FirstOf(const std::vector<std::string>& keys) const {
  for (const std::string& key : keys) {
    if (Has(key)) return key;
  }
  return "";
}

Result<NpyArray> ArrayArchive::Open(std::string_view key) const {
  std::string keys;
  for (const Member& member : members) {
    if (member.key == key) return member.open();
    keys += (keys.empty() ? "" : ", ") + Excerpt(member.key);
  }
  return MakeStatus(Code::kInvalidArgument, "{}: holds no array '{}', only {}", path, key,
                    keys.empty() ? "nothing" : keys);
}

bool IsArrayArchive(const std::string& path) {
  return path.ends_with(".npz") || path.ends_with(".safetensors") || path.ends_with(".pt");
}

Result<ArrayArchive> OpenArrayArchive(const std::string& path) {
  if (path.ends_with(".pt")) return OpenTorchFile(path);
  return path.ends_with(".npz") ? OpenNpz(path) : OpenSafetensors(path);
}

}  // namespace quarry
