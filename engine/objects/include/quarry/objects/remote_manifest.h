// RemoteManifest: what a place in an object store holds. One object, PREFIX/manifest, names all others; it is the only
// one that is ever replaced (docs/objects.md has its form and the bucket's).
//
// A file is an object, PREFIX/data/DIGEST-BYTES, named by its content, so that equal files are one object, whichever
// push brought it, and no object that a manifest names changes. Its bytes are checksummed by blocks, which readers
// fetch and verify one by one.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "quarry/base/status.h"

namespace quarry {

inline constexpr uint64_t kRemoteBlockBytes = 4 << 20;
inline constexpr const char* kRemoteManifestKey = "manifest";
inline constexpr uint64_t kRemoteManifestBytesMax = 256 << 20;  // of 60 TB

struct RemoteFile {
  std::string name;  // relative to the database's folder
  uint64_t bytes = 0;
  std::vector<uint64_t> blocks;  // Checksum64 of each block; the last may be shorter than the others

  uint64_t BlockBytes(size_t block) const;
  uint64_t Digest() const;  // of the checksums
  std::string Key() const;
  // kCorruption names file and block.
  Status Check(size_t block, std::span<const std::byte> bytes) const;

  bool operator==(const RemoteFile&) const = default;
};

struct RemoteManifest {
  std::string database_id;
  std::string publication;  // of this push alone, so that no two manifests are equal
  std::string published_utc;
  uint64_t timestamp = 0;  // the last commit that is in it
  std::vector<RemoteFile> files;

  uint64_t bytes() const;
  bool operator==(const RemoteManifest&) const = default;
};

std::string EncodeRemoteManifest(const RemoteManifest& manifest);
// `source`: for messages. kCorruption names the line; kUnsupported for another version.
Result<RemoteManifest> DecodeRemoteManifest(std::string_view text, std::string_view source);

}  // namespace quarry
