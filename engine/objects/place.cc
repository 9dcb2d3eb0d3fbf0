#include "quarry/objects/place.h"

#include <algorithm>

namespace quarry {
namespace {

bool IsBucketCharacter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '.';
}

Status PlaceFault(std::string_view address, std::string_view what) {
  return MakeStatus(Code::kUsage, "{}: {}; a place in an object store is s3://BUCKET/PREFIX", address, what);
}

}  // namespace

Result<ObjectPlace> ParseObjectPlace(std::string_view address) {
  if (!IsObjectAddress(address)) return PlaceFault(address, "no address of an object store");
  std::string_view rest = address.substr(kObjectScheme.size());
  const size_t slash = rest.find('/');
  ObjectPlace place;
  place.bucket = rest.substr(0, slash);
  if (place.bucket.size() < 3 || place.bucket.size() > 63 ||
      !std::all_of(place.bucket.begin(), place.bucket.end(), IsBucketCharacter)) {
    return PlaceFault(address, fmt::format("'{}' is no name of a bucket", place.bucket));
  }
  rest = slash == std::string_view::npos ? std::string_view() : rest.substr(slash + 1);
  while (rest.ends_with('/')) rest.remove_suffix(1);
  if (rest.empty()) return PlaceFault(address, "no prefix behind the bucket");
  if (rest.size() > 512) return PlaceFault(address, "the prefix is longer than 512 bytes");
  place.prefix = rest;
  for (std::string_view parts = rest; !parts.empty();) {
    const size_t end = std::min(parts.find('/'), parts.size());
    const std::string_view part = parts.substr(0, end);
    if (part.empty() || part == "." || part == "..") {
      return PlaceFault(address, fmt::format("'{}' is no part of a prefix", part));
    }
    parts.remove_prefix(std::min(end + 1, parts.size()));
  }
  return place;
}

}  // namespace quarry
