// ObjectPlace: where a database lies in an object store, as addresses name it: s3://BUCKET/PREFIX.
#pragma once

#include <string>
#include <string_view>

#include "quarry/base/status.h"

namespace quarry {

inline constexpr std::string_view kObjectScheme = "s3://";

struct ObjectPlace {
  std::string bucket;
  std::string prefix;  // without a slash at either end

  std::string address() const { return std::string(kObjectScheme) + bucket + "/" + prefix; }
  std::string KeyOf(std::string_view name) const { return prefix + "/" + std::string(name); }
};

inline bool IsObjectAddress(std::string_view address) { return address.starts_with(kObjectScheme); }

// kUsage names what is wrong: no bucket, no prefix (a database never takes a whole bucket), a character that no
// bucket's name has, an empty or dotted part of the prefix.
Result<ObjectPlace> ParseObjectPlace(std::string_view address);

}  // namespace quarry
