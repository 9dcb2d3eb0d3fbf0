// Byte sources over bytes that lie otherwise than they are read. Private to this room.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "byte_source.h"

namespace quarry {

// `bytes` from `offset` on.
std::unique_ptr<ByteSource> OpenMemory(std::string bytes, uint64_t offset);

// `bytes` bytes that lie as a text of `text_bytes`: the code points 0 to 255 in UTF-8, which is how pickles
// of protocol 2 have them. Other text is refused where it is reached; `name` is for that message.
std::unique_ptr<ByteSource> OpenTextBytes(std::string name, std::unique_ptr<ByteSource> text,
                                          uint64_t text_bytes, uint64_t bytes);

// The next `rows` rows of a matrix that lies column by column. `columns`: one each, all at the same row.
// REQUIRES: rows is at least 1.
std::unique_ptr<ByteSource> OpenColumnRows(std::vector<std::unique_ptr<ByteSource>> columns,
                                           size_t item_bytes, uint64_t rows);

}  // namespace quarry
