#include "spool.h"

#include <algorithm>
#include <cstring>

#include "quarry/base/units.h"
#include "quarry/format/feature_table.h"

namespace quarry {

Result<Spool> Spool::Make(IoBackend& backend, std::string directory) {
  QUARRY_TRY(IoBuffer buffer, IoBuffer::Allocate(kBufferBytes));
  return Spool(backend, std::move(directory), std::move(buffer));
}

Spool::Spool(IoBackend& backend, std::string directory, IoBuffer buffer)
    : backend_(&backend), directory_(std::move(directory)), buffer_(std::move(buffer)) {}

Status Spool::Append(std::span<const std::byte> bytes) {
  bytes_ += bytes.size();
  while (!bytes.empty()) {
    if (buffered_bytes_ == buffer_.size()) {
      if (file_ == nullptr) {
        QUARRY_TRY(file_, RunFile::Create(*backend_, directory_));
      }
      QUARRY_RETURN_IF_ERROR(file_->Append(buffer_.span()));
      buffered_bytes_ = 0;
    }
    const size_t take = std::min(bytes.size(), buffer_.size() - buffered_bytes_);
    std::memcpy(buffer_.data() + buffered_bytes_, bytes.data(), take);
    buffered_bytes_ += take;
    bytes = bytes.subspan(take);
  }
  return Status::Ok();
}

Status Spool::CopyTo(DataFileWriter& writer) {
  if (file_ == nullptr) return writer.Append(buffer_.span().first(buffered_bytes_));
  QUARRY_RETURN_IF_ERROR(file_->Append(buffer_.span().first(buffered_bytes_)));
  file_->EndRun();
  const RunFile::Run& run = file_->runs().front();
  for (uint64_t at = 0; at < run.bytes; at += buffer_.size()) {
    const uint64_t bytes = std::min<uint64_t>(buffer_.size(), run.bytes - at);
    QUARRY_RETURN_IF_ERROR(file_->Read(run, at, buffer_.span().first(RoundUp(bytes, kPageBytes))));
    QUARRY_RETURN_IF_ERROR(writer.Append(buffer_.span().first(bytes)));
  }
  return Status::Ok();
}

}  // namespace quarry
