#include "export_output.h"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <cstring>
#include <iterator>
#include <vector>

#include "quarry/base/units.h"
#include "quarry/format/feature_table.h"
#include "quarry/format/npy_writer.h"

namespace quarry {
namespace {

constexpr size_t kTextBytes = 64 * kKiB;

}  // namespace

ElementType StoredAs(ElementType type, ExportFormat format) {
  const bool known = type == ElementType::kFloat16 ||
                     (type == ElementType::kBfloat16 && format != ExportFormat::kGraphBolt) ||
                     (type == ElementType::kInt8 && format == ExportFormat::kNpy);
  return known ? type : ElementType::kFloat32;
}

Result<FileOutput> FileOutput::Create(ExportTarget& target, const std::string& name, uint64_t header_bytes,
                                      uint64_t buffer_bytes) {
  assert(header_bytes % kPageBytes == 0 && header_bytes <= buffer_bytes && buffer_bytes % kPageBytes == 0);
  QUARRY_TRY(MemoryBudget::Reservation reservation,
             target.budget.Reserve(IoBuffer::MappedBytes(buffer_bytes), "exporting"));
  QUARRY_TRY(IoBuffer buffer, IoBuffer::Allocate(buffer_bytes));
  QUARRY_TRY(File file, target.backend.Open(target.folder + "/" + name, OpenMode::kCreateDirect));
  return FileOutput(target, std::move(file), std::move(buffer), std::move(reservation), header_bytes);
}

Status FileOutput::Append(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const size_t count = std::min(bytes.size(), buffer_.size() - buffered_);
    std::memcpy(buffer_.data() + buffered_, bytes.data(), count);
    buffered_ += count;
    bytes = bytes.subspan(count);
    if (buffered_ == buffer_.size()) QUARRY_RETURN_IF_ERROR(Flush());
  }
  return Status::Ok();
}

// Direct writes are whole pages; what the last one writes beyond the end is cut off afterwards.
Status FileOutput::Flush() {
  const uint64_t padded_bytes = RoundUp(buffered_, kPageBytes);
  std::memset(buffer_.data() + buffered_, 0, padded_bytes - buffered_);
  QUARRY_RETURN_IF_ERROR(target_->backend.WriteAt(file_, position_, buffer_.span().first(padded_bytes)));
  position_ += buffered_;
  buffered_ = 0;
  return Status::Ok();
}

Status FileOutput::Finish(std::span<const std::byte> header) {
  if (buffered_ > 0) QUARRY_RETURN_IF_ERROR(Flush());
  if (!header.empty()) {
    std::ranges::copy(header, buffer_.data());
    QUARRY_RETURN_IF_ERROR(target_->backend.WriteAt(file_, 0, buffer_.span().first(header.size())));
  }
  QUARRY_RETURN_IF_ERROR(target_->backend.Truncate(file_, position_));
  ++target_->files;
  target_->bytes += position_;
  return target_->backend.SyncFile(file_);
}

Result<ArrayOutput> ArrayOutput::Create(ExportTarget& target, const std::string& name, ElementType type,
                                        uint64_t columns, uint64_t buffer_bytes) {
  const std::string file_name = name + (target.text ? ".csv" : ".npy");
  QUARRY_TRY(FileOutput file,
             FileOutput::Create(target, file_name, target.text ? 0 : kNpyHeaderBytes, buffer_bytes));
  return ArrayOutput(std::move(file), file_name, type, columns, target.text);
}

template <typename Value>
Status ArrayOutput::AppendText(Value value) {
  fmt::format_to(std::back_inserter(line_), "{}", value);
  ++elements_;
  line_ += columns_ > 1 && elements_ % columns_ != 0 ? ',' : '\n';
  if (line_.size() < kTextBytes) return Status::Ok();
  QUARRY_RETURN_IF_ERROR(file_.Append(line_));
  line_.clear();
  return Status::Ok();
}

Status ArrayOutput::Append(int64_t value) {
  assert(type_ == ElementType::kInt64);
  if (text_) return AppendText(value);
  ++elements_;
  return file_.Append(std::as_bytes(std::span(&value, 1)));
}

Status ArrayOutput::Append(std::span<const std::byte> elements) {
  const size_t count = elements.size() / ElementBytes(type_);
  if (!text_) {
    elements_ += count;
    return file_.Append(elements);
  }
  assert(type_ != ElementType::kInt8);
  if (type_ == ElementType::kInt64) {
    for (size_t i = 0; i < count; ++i) {
      int64_t value = 0;
      std::memcpy(&value, elements.data() + i * sizeof(value), sizeof(value));
      QUARRY_RETURN_IF_ERROR(AppendText(value));
    }
    return Status::Ok();
  }
  std::vector<float> values(count);
  DecodeRow(type_, elements, values);
  for (const float value : values) QUARRY_RETURN_IF_ERROR(AppendText(value));  // the shortest that reads back
  return Status::Ok();
}

Status ArrayOutput::Finish(std::span<const uint64_t> shape) {
  if (text_) {
    QUARRY_RETURN_IF_ERROR(file_.Append(line_));
    return file_.Finish({});
  }
  std::vector<uint64_t> extents(shape.begin(), shape.end());
  if (extents.empty()) {
    extents = columns_ == 0 ? std::vector{elements_} : std::vector{elements_ / columns_, columns_};
  }
  return file_.Finish(EncodeNpyHeader(type_, extents));
}

}  // namespace quarry
