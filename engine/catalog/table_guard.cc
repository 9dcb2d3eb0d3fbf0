#include "table_guard.h"

#include <array>
#include <cstring>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "catalog_files.h"
#include "quarry/base/mutex.h"
#include "quarry/format/checksum.h"

namespace quarry {
namespace {

// RocksDB's block-based tables in format_version 5, with blocks under XXH3: rocks.cc has them written so.
// Tables in other forms are left to RocksDB.
constexpr size_t kFooterBytes = 53;  // kind of checksum, two handles in 40 bytes, version, magic
constexpr size_t kHandlesAt = 1, kVersionAt = 41, kMagicAt = 45;
constexpr char kXxh3 = 4, kNoChecksum = 0;
constexpr uint32_t kVersion = 5;
constexpr uint64_t kMagic = 0x88e241b785f4cff7;
constexpr size_t kTrailerBytes = 5;  // kind of compression, checksum
constexpr std::string_view kPropertiesName = "rocksdb.properties";
// A block that claims more is damaged: those of a table's end have some kilobytes.
constexpr uint64_t kBlockBytesMax = uint64_t{16} << 20;

template <typename T>
T Fixed(std::string_view bytes, size_t at) {
  T value;
  std::memcpy(&value, bytes.data() + at, sizeof(value));
  return value;
}

// Takes an integer of seven bits a byte from the front of `bytes`.
std::optional<uint64_t> TakeVarint(std::string_view& bytes) {
  uint64_t value = 0;
  for (unsigned shift = 0; shift < 64 && !bytes.empty(); shift += 7) {
    const auto byte = static_cast<unsigned char>(bytes.front());
    bytes.remove_prefix(1);
    value |= uint64_t{byte & 0x7FU} << shift;
    if (byte < 0x80) return value;
  }
  return std::nullopt;
}

struct BlockHandle {
  uint64_t offset = 0, bytes = 0;
};
std::optional<BlockHandle> TakeHandle(std::string_view& bytes) {
  const auto offset = TakeVarint(bytes), size = TakeVarint(bytes);
  if (!offset || !size) return std::nullopt;
  return BlockHandle{*offset, *size};
}

// As RocksDB sums up a block and the byte behind it.
uint32_t BlockChecksum(std::string_view block, char last) {
  constexpr uint32_t kPrime = 0x6b9083d9;
  return static_cast<uint32_t>(Checksum64(std::as_bytes(std::span(block)))) ^
         (static_cast<unsigned char>(last) * kPrime);
}

// `bytes`: a block and its trailer.
bool IsWhole(std::string_view bytes) {
  const size_t block = bytes.size() - kTrailerBytes;
  return BlockChecksum(bytes.substr(0, block), bytes[block]) == Fixed<uint32_t>(bytes, block + 1);
}

class TableEnd {
 public:
  TableEnd(rocksdb::FSRandomAccessFile& file, std::string name, uint64_t file_bytes)
      : file_(file), name_(std::move(name)), file_bytes_(file_bytes) {}

  rocksdb::IOStatus Check() {
    if (file_bytes_ < kFooterBytes) return rocksdb::IOStatus::OK();
    std::string footer;
    rocksdb::IOStatus status = Read({file_bytes_ - kFooterBytes, kFooterBytes}, footer);
    if (!status.ok() || Fixed<uint32_t>(footer, kVersionAt) != kVersion ||
        Fixed<uint64_t>(footer, kMagicAt) != kMagic) {
      return status;
    }
    if (footer[0] == kNoChecksum) return Damaged("footer");  // RocksDB would believe every block
    if (footer[0] != kXxh3) return status;
    std::string_view handles = std::string_view(footer).substr(kHandlesAt, kVersionAt - kHandlesAt);
    const auto metaindex_at = TakeHandle(handles);
    const auto index_at = TakeHandle(handles);
    if (!metaindex_at || !index_at) return Damaged("footer");
    std::string index;
    status = ReadBlock("index", *index_at, index);
    if (!status.ok()) return status;
    data_bytes_ = index_at->offset;
    std::string metaindex;
    status = ReadBlock("metaindex", *metaindex_at, metaindex);
    if (!status.ok()) return status;
    const auto properties_at = FindProperties(metaindex);
    if (!properties_at) return Damaged("metaindex");
    std::string properties;
    return ReadBlock("properties", *properties_at, properties);
  }
  // How many bytes the data blocks take up, which lie at the front of the file; 0: the table has another form.
  uint64_t data_bytes() const { return data_bytes_; }

 private:
  rocksdb::IOStatus Damaged(std::string_view block) const {
    return rocksdb::IOStatus::Corruption("damaged " + std::string(block) + " block in " + name_);
  }

  rocksdb::IOStatus Read(const BlockHandle& range, std::string& bytes) {
    bytes.resize(range.bytes);
    rocksdb::Slice read;
    rocksdb::IOStatus status = file_.Read(range.offset, range.bytes, {}, &read, bytes.data(), nullptr);
    if (!status.ok()) return status;
    if (read.size() != range.bytes) return rocksdb::IOStatus::Corruption(name_ + " ends early");
    if (read.data() != bytes.data()) bytes.assign(read.data(), read.size());  // of a file that is mapped
    return status;
  }

  rocksdb::IOStatus ReadBlock(std::string_view what, const BlockHandle& block, std::string& bytes) {
    if (block.bytes == 0 || block.bytes > kBlockBytesMax || block.offset > file_bytes_ ||
        block.bytes + kTrailerBytes > file_bytes_ - block.offset) {
      return Damaged(what);
    }
    const rocksdb::IOStatus status = Read({block.offset, block.bytes + kTrailerBytes}, bytes);
    if (!status.ok()) return status;
    if (!IsWhole(bytes)) return Damaged(what);
    bytes.resize(block.bytes);
    return status;
  }

  // The metaindex has an entry for each of its keys: length shared with the key before (none), the key's own
  // length, the value's, both.
  static std::optional<BlockHandle> FindProperties(std::string_view metaindex) {
    while (!metaindex.empty()) {
      const auto shared = TakeVarint(metaindex), key = TakeVarint(metaindex), value = TakeVarint(metaindex);
      if (!shared || !key || !value || *key > metaindex.size() || *value > metaindex.size() - *key) break;
      if (metaindex.substr(0, *key) == kPropertiesName) {
        std::string_view handle = metaindex.substr(*key, *value);
        return TakeHandle(handle);
      }
      metaindex.remove_prefix(*key + *value);
    }
    return std::nullopt;
  }

  rocksdb::FSRandomAccessFile& file_;
  const std::string name_;
  const uint64_t file_bytes_;
  uint64_t data_bytes_ = 0;
};

// Databases of which a compaction could not read a table, by folder. One for the process, as file systems are.
class FailedCompactions {
 public:
  static FailedCompactions& Get() {
    static auto* const all = new FailedCompactions;  // RocksDB's threads may outlive the end of main
    return *all;
  }
  void Add(const std::string& folder, const rocksdb::IOStatus& status) {
    MutexLock lock(mutex_);
    failures_.emplace(folder, status);
  }
  void Remove(const std::string& folder) {
    MutexLock lock(mutex_);
    failures_.erase(folder);
  }
  rocksdb::IOStatus Of(const std::string& folder) {
    MutexLock lock(mutex_);
    const auto failure = failures_.find(folder);
    return failure == failures_.end() ? rocksdb::IOStatus::OK() : failure->second;
  }

 private:
  Mutex mutex_;
  std::map<std::string, rocksdb::IOStatus> failures_ QUARRY_GUARDED_BY(mutex_);
};

thread_local std::map<std::string, TableFailures> failures_of_thread;  // by folder
thread_local std::string compacted_by_thread;                          // the folder; empty: none

std::string FolderOf(const std::string& file) { return file.substr(0, file.rfind('/')); }

// `status`, of opening or reading the table.
rocksdb::IOStatus Noted(rocksdb::IOStatus status, const std::string& table) {
  if (status.ok()) return status;
  const std::string folder = FolderOf(table);
  TableFailures& failures = failures_of_thread[folder];
  ++failures.count;
  failures.last = status;
  if (compacted_by_thread == folder) FailedCompactions::Get().Add(folder, status);
  return status;
}

class GuardedTable final : public rocksdb::FSRandomAccessFileOwnerWrapper {
 public:
  GuardedTable(std::unique_ptr<rocksdb::FSRandomAccessFile>&& file, std::string name, uint64_t data_bytes)
      : FSRandomAccessFileOwnerWrapper(std::move(file)), name_(std::move(name)), data_bytes_(data_bytes) {}

  rocksdb::IOStatus Read(uint64_t offset, size_t bytes, const rocksdb::IOOptions& options,
                         rocksdb::Slice* result, char* scratch,
                         rocksdb::IODebugContext* debug) const override {
    rocksdb::IOStatus status =
        FSRandomAccessFileOwnerWrapper::Read(offset, bytes, options, result, scratch, debug);
    // Nothing is read ahead (rocks.cc), so this is a block.
    const bool is_block = bytes > kTrailerBytes && offset + bytes <= data_bytes_;
    if (status.ok() && is_block && result->size() == bytes && !IsWhole(result->ToStringView())) {
      status = rocksdb::IOStatus::Corruption("block checksum mismatch in " + name_ + " offset " +
                                             std::to_string(offset));
    }
    return Noted(std::move(status), name_);
  }
  rocksdb::IOStatus MultiRead(rocksdb::FSReadRequest* requests, size_t count,
                              const rocksdb::IOOptions& options, rocksdb::IODebugContext* debug) override {
    rocksdb::IOStatus status = FSRandomAccessFileOwnerWrapper::MultiRead(requests, count, options, debug);
    for (size_t i = 0; i < count; ++i) static_cast<void>(Noted(requests[i].status, name_).ok());
    return Noted(std::move(status), name_);
  }

 private:
  const std::string name_;
  const uint64_t data_bytes_;
};

class GuardedManifest final : public rocksdb::FSWritableFileOwnerWrapper {
 public:
  GuardedManifest(std::unique_ptr<rocksdb::FSWritableFile>&& file, std::string folder)
      : FSWritableFileOwnerWrapper(std::move(file)), folder_(std::move(folder)) {}

  rocksdb::IOStatus Append(const rocksdb::Slice& data, const rocksdb::IOOptions& options,
                           rocksdb::IODebugContext* debug) override {
    rocksdb::IOStatus failed = FailedCompactions::Get().Of(folder_);
    if (!failed.ok()) return failed;
    return FSWritableFileOwnerWrapper::Append(data, options, debug);
  }
  rocksdb::IOStatus Append(const rocksdb::Slice& data, const rocksdb::IOOptions& options,
                           const rocksdb::DataVerificationInfo& /*verification*/,
                           rocksdb::IODebugContext* debug) override {
    return Append(data, options, debug);
  }

 private:
  const std::string folder_;
};

class TableGuardFileSystem final : public rocksdb::FileSystemWrapper {
 public:
  using FileSystemWrapper::FileSystemWrapper;
  const char* Name() const override { return "TableGuardFileSystem"; }

  rocksdb::IOStatus NewRandomAccessFile(const std::string& name, const rocksdb::FileOptions& options,
                                        std::unique_ptr<rocksdb::FSRandomAccessFile>* file,
                                        rocksdb::IODebugContext* debug) override {
    rocksdb::IOStatus status = FileSystemWrapper::NewRandomAccessFile(name, options, file, debug);
    if (!name.ends_with(kTableSuffix)) return status;
    uint64_t bytes = 0;
    if (status.ok()) status = GetFileSize(name, {}, &bytes, debug);
    if (!status.ok()) return Noted(std::move(status), name);
    TableEnd end(**file, name, bytes);
    status = end.Check();
    if (status.ok()) {
      *file = std::make_unique<GuardedTable>(std::move(*file), name, end.data_bytes());
    } else {
      file->reset();
    }
    return Noted(std::move(status), name);
  }

  rocksdb::IOStatus NewWritableFile(const std::string& name, const rocksdb::FileOptions& options,
                                    std::unique_ptr<rocksdb::FSWritableFile>* file,
                                    rocksdb::IODebugContext* debug) override {
    rocksdb::IOStatus status = FileSystemWrapper::NewWritableFile(name, options, file, debug);
    if (status.ok() && std::string_view(name).substr(name.rfind('/') + 1).starts_with("MANIFEST-")) {
      *file = std::make_unique<GuardedManifest>(std::move(*file), FolderOf(name));
    }
    return status;
  }
};

}  // namespace

std::shared_ptr<rocksdb::FileSystem> WithTableGuard(std::shared_ptr<rocksdb::FileSystem> files) {
  return std::make_shared<TableGuardFileSystem>(std::move(files));
}

const TableFailures& TableFailuresOfThread(const std::string& path) { return failures_of_thread[path]; }
void SetCompactedByThread(const std::string& path) { compacted_by_thread = path; }
void ForgetFailedCompaction(const std::string& path) { FailedCompactions::Get().Remove(path); }

}  // namespace quarry
