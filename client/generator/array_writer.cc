#include "generator/array_writer.h"

#include <algorithm>
#include <cstring>
#include <filesystem>

#include "quarry/base/thread.h"
#include "quarry/base/units.h"
#include "quarry/format/npy_writer.h"

namespace quarry {
namespace {

namespace fs = std::filesystem;

// Large enough that a write runs at the device's bandwidth; a multiple of every block size.
constexpr uint64_t kChunkBytes = 4 * kMiB;

}  // namespace

Status ArrayWriter::AllocateBuffers(unsigned threads) {
  buffers_.resize(threads);
  for (IoBuffer& buffer : buffers_) {
    QUARRY_TRY(buffer, IoBuffer::Allocate(kChunkBytes));
  }
  return Status::Ok();
}

Status ArrayWriter::WriteChunks(Array& array, const IoBuffer& buffer, bool report) {
  while (!array.stop.load(std::memory_order_relaxed)) {
    const uint64_t offset = array.next_chunk.fetch_add(1, std::memory_order_relaxed) * kChunkBytes;
    if (offset >= array.data_bytes) break;
    const uint64_t bytes = std::min(kChunkBytes, array.data_bytes - offset);
    // Direct writes are whole blocks; what the last one writes beyond the end is cut off afterwards.
    const uint64_t padded_bytes = RoundUp(bytes, kNpyHeaderBytes);
    array.fill(offset / array.element_bytes, buffer.span().first(bytes));
    std::memset(buffer.data() + bytes, 0, padded_bytes - bytes);
    Status status = backend_.WriteAt(array.file, kNpyHeaderBytes + offset, buffer.span().first(padded_bytes));
    const uint64_t done = bytes_done_.fetch_add(bytes) + bytes;
    if (status.ok() && report && progress_)
      status = progress_("generating " + array.name, done, bytes_total_);
    if (!status.ok()) {
      array.stop = true;
      return status;
    }
  }
  return Status::Ok();
}

Status ArrayWriter::Write(const std::string& name, ElementType type, const std::vector<uint64_t>& shape,
                          const Fill& fill) {
  const std::string path = folder_ + "/" + name;
  // Also here, since the other threads may take every chunk of a small array.
  if (progress_) QUARRY_RETURN_IF_ERROR(progress_("generating " + name, bytes_done_, bytes_total_));
  QUARRY_TRY(const File file, backend_.Open(path, OpenMode::kCreateDirect));
  const std::vector<std::byte> header = EncodeNpyHeader(type, shape);
  std::ranges::copy(header, buffers_[0].data());
  QUARRY_RETURN_IF_ERROR(backend_.WriteAt(file, 0, buffers_[0].span().first(header.size())));
  uint64_t data_bytes = ElementBytes(type);
  for (uint64_t extent : shape) data_bytes *= extent;
  Array array{file, name, ElementBytes(type), data_bytes, fill};
  QUARRY_RETURN_IF_ERROR(RunOnThreads("generate", static_cast<unsigned>(buffers_.size()),
                                      [&](unsigned i) { return WriteChunks(array, buffers_[i], i == 0); }));
  QUARRY_RETURN_IF_ERROR(backend_.Truncate(file, kNpyHeaderBytes + data_bytes));
  return backend_.SyncFile(file);
}

Status ArrayWriter::WriteInOrder(const std::string& name, ElementType type,
                                 const std::vector<uint64_t>& shape,
                                 const std::function<Result<std::span<const std::byte>>()>& next) {
  QUARRY_TRY(const File file, backend_.Open(folder_ + "/" + name, OpenMode::kCreate));
  QUARRY_RETURN_IF_ERROR(backend_.WriteAt(file, 0, EncodeNpyHeader(type, shape)));
  uint64_t left = ElementBytes(type);
  for (const uint64_t extent : shape) left *= extent;
  for (uint64_t offset = kNpyHeaderBytes; left > 0;) {
    if (progress_) QUARRY_RETURN_IF_ERROR(progress_("generating " + name, bytes_done_, bytes_total_));
    QUARRY_TRY(const std::span<const std::byte> piece, next());
    QUARRY_RETURN_IF_ERROR(backend_.WriteAt(file, offset, piece));
    offset += piece.size();
    left -= piece.size();
    bytes_done_ += piece.size();
  }
  return backend_.SyncFile(file);
}

Status CheckSpace(const std::string& folder, uint64_t bytes) {
  std::error_code error;
  const fs::space_info space = fs::space(folder, error);
  if (error || space.available >= bytes) return Status::Ok();
  return MakeStatus(Code::kNoSpace, "{}: the files take {}, and the disk has {} left", folder,
                    FormatBytes(bytes), FormatBytes(space.available));
}

Status WriteText(IoBackend& backend, const std::string& path, std::string_view text) {
  QUARRY_TRY(const File file, backend.Open(path, OpenMode::kCreate));
  QUARRY_RETURN_IF_ERROR(backend.WriteAt(file, 0, std::as_bytes(std::span(text))));
  return backend.SyncFile(file);
}

}  // namespace quarry
