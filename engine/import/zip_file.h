// Members of zip archives as byte sources, stored or deflated. Private to this room.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "byte_source.h"
#include "quarry/base/status.h"

namespace quarry {

struct ZipMember {
  std::string name;
  uint64_t index = 0;
  uint64_t bytes = 0;  // inflated, as the archive's directory states it
};

// The archive's directory. kInvalidArgument when the file is no zip archive, cut off or damaged.
Result<std::vector<ZipMember>> ListZip(const std::string& path);

// The member's bytes from `skip_bytes` on; `name` is for messages. libzip inflates as a stream, so that a
// member of any size costs a window, and compares its CRC when the member is read to its end.
Result<std::unique_ptr<ByteSource>> OpenZipMember(const std::string& path, const ZipMember& member,
                                                  const std::string& name, uint64_t skip_bytes);

}  // namespace quarry
