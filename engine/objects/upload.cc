#include "upload.h"

#include <algorithm>

#include "quarry/base/units.h"

namespace quarry {
namespace {

constexpr uint64_t kPartsMax = 10'000;
constexpr uint64_t kPartBytesMin = 2 * kRemoteBlockBytes;  // S3 takes no part below 5 MiB but the last

}  // namespace

uint64_t PartBytes(uint64_t file_bytes) {
  return std::max(kPartBytesMin, RoundUp(CeilDiv(file_bytes, kPartsMax), kRemoteBlockBytes));
}

Result<File> OpenToRead(IoBackend& backend, const std::string& path, uint64_t bytes) {
  constexpr uint64_t kPage = 4096;
  return backend.Open(path, bytes % kPage == 0 ? OpenMode::kReadDirect : OpenMode::kReadBuffered);
}

Status Uploader::ReadPart(const File& from, const RemoteFile& file, uint64_t offset,
                          std::span<std::byte> out) {
  QUARRY_RETURN_IF_ERROR(backend_.ReadAt(from, offset, out));
  for (uint64_t at = 0; at < out.size(); at += kRemoteBlockBytes) {
    const size_t block = (offset + at) / kRemoteBlockBytes;
    const Status same = file.Check(block, out.subspan(at, file.BlockBytes(block)));
    if (!same.ok()) {
      return MakeStatus(Code::kCorruption, "{}: changed while it was pushed: {}", from.path(),
                        same.message());
    }
  }
  return Status::Ok();
}

Status Uploader::Send(const std::string& path, const RemoteFile& file) {
  return file.bytes <= PartBytes(file.bytes) ? SendWhole(path, file) : SendParts(path, file);
}

Status Uploader::SendWhole(const std::string& path, const RemoteFile& file) {
  QUARRY_TRY(TransferSlots::Slot* const slot, slots_.Take());
  const std::span<std::byte> bytes = slot->buffer().first(file.bytes);
  if (file.bytes > 0) {
    QUARRY_TRY(const File from, OpenToRead(backend_, path, file.bytes));
    QUARRY_RETURN_IF_ERROR(ReadPart(from, file, 0, bytes));
  }
  store_.StartPut(file.Key(), bytes, slot->Done([this, count = file.bytes](const ObjectAnswer&) -> Status {
    bytes_sent_ += count;
    return advance_(count);
  }));
  return Status::Ok();
}

Result<std::string> Uploader::Resume(const RemoteFile& file, std::vector<ObjectPart>& parts) {
  const std::string key = file.Key();
  QUARRY_TRY(const std::optional<std::string> begun, store_.FindUpload(key));
  if (!begun) return store_.CreateUpload(key);
  Result<std::vector<ObjectPart>> listed = store_.ListParts(key, *begun);
  if (listed.status().code() == Code::kNotFound) return store_.CreateUpload(key);  // ended in between
  QUARRY_RETURN_IF_ERROR(listed.status());
  const uint64_t part_bytes = PartBytes(file.bytes);
  for (const ObjectPart& part : *listed) {
    if (part.number == 0 || part.number > parts.size()) continue;
    const uint64_t offset = (part.number - 1) * part_bytes;
    if (part.bytes == std::min(part_bytes, file.bytes - offset)) parts[part.number - 1] = part;
  }
  return *begun;
}

Status Uploader::SendParts(const std::string& path, const RemoteFile& file) {
  const std::string key = file.Key();
  const uint64_t part_bytes = PartBytes(file.bytes);
  QUARRY_RETURN_IF_ERROR(
      slots_.Drain());  // buffers of others hold nothing up, and errors below are of this file
  QUARRY_TRY(const File from, OpenToRead(backend_, path, file.bytes));
  // Another push may complete or give up the upload that both go on with, which is then gone: the object is there, or
  // another upload is begun.
  constexpr int kTriesMax = 4;
  Status status;
  for (int i = 0; i < kTriesMax; i++) {
    std::vector<ObjectPart> parts(CeilDiv(file.bytes, part_bytes));
    QUARRY_TRY(const std::string upload, Resume(file, parts));
    status = Status::Ok();
    for (size_t part = 0; part < parts.size() && status.ok(); part++) {
      const uint64_t offset = part * part_bytes;
      const uint64_t bytes = std::min(part_bytes, file.bytes - offset);
      if (parts[part].number != 0) {
        status = advance_(bytes);
        continue;
      }
      Result<TransferSlots::Slot*> slot = slots_.Take();
      status = slot.status();
      if (!status.ok()) break;
      const std::span<std::byte> body = (*slot)->buffer().first(bytes);
      QUARRY_RETURN_IF_ERROR(ReadPart(from, file, offset, body));
      const auto number = static_cast<uint32_t>(part + 1);
      store_.StartPutPart(key, upload, number, body,
                          (*slot)->Done([this, bytes, number, &parts](const ObjectAnswer& answer) -> Status {
                            parts[number - 1] = {number, bytes, answer.etag};
                            bytes_sent_ += bytes;
                            return advance_(bytes);
                          }));
    }
    const Status drained = slots_.Drain();
    if (status.ok()) status = drained;
    if (status.ok()) status = store_.CompleteUpload(key, upload, parts);
    if (status.code() != Code::kNotFound) return status;
    const Result<ObjectAnswer> there = store_.Head(key);
    if (there.ok() && there->bytes == file.bytes) return Status::Ok();
  }
  return status;
}

}  // namespace quarry
