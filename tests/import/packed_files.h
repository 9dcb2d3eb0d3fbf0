// Zip archives and gzip files for reader tests.
#pragma once

#include <gtest/gtest.h>
#include <zip.h>
#include <zlib.h>

#include <string>
#include <utility>
#include <vector>

#include "support/file_text.h"
#include "support/temporary_folder.h"

namespace quarry {

// Members by key, each the bytes of an .npy file.
using NpzMembers = std::vector<std::pair<std::string, std::string>>;

inline std::string WriteNpz(const TemporaryFolder& folder, std::string_view name, const NpzMembers& members,
                            bool deflate) {
  std::string path = folder / name;
  int error = 0;
  zip_t* const archive = zip_open(path.c_str(), ZIP_CREATE | ZIP_TRUNCATE, &error);
  EXPECT_NE(archive, nullptr);
  for (const auto& [key, bytes] : members) {
    zip_source_t* const source = zip_source_buffer(archive, bytes.data(), bytes.size(), 0);
    const zip_int64_t index = zip_file_add(archive, (key + ".npy").c_str(), source, 0);
    EXPECT_GE(index, 0);
    zip_set_file_compression(archive, static_cast<zip_uint64_t>(index),
                             deflate ? ZIP_CM_DEFLATE : ZIP_CM_STORE, 0);
  }
  EXPECT_EQ(zip_close(archive), 0);
  return path;
}

inline std::string Gzip(const std::string& text) {
  std::string packed(compressBound(text.size()) + 64, '\0');
  z_stream stream{};
  deflateInit2(&stream, Z_DEFAULT_COMPRESSION, Z_DEFLATED, 15 + 16, 8,
               Z_DEFAULT_STRATEGY);  // + 16: gzip's header
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  stream.avail_in = static_cast<uInt>(text.size());
  stream.next_out = reinterpret_cast<Bytef*>(packed.data());
  stream.avail_out = static_cast<uInt>(packed.size());
  EXPECT_EQ(deflate(&stream, Z_FINISH), Z_STREAM_END);
  packed.resize(stream.total_out);
  deflateEnd(&stream);
  return packed;
}

}  // namespace quarry
