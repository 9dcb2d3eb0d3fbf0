#include "derived_sources.h"

#include <algorithm>
#include <cstring>

namespace quarry {
namespace {

constexpr size_t kStepBytes = 64 << 10;

class MemorySource final : public ByteSource {
 public:
  MemorySource(std::string bytes, uint64_t offset) : bytes_(std::move(bytes)), at_(offset) {}
  Result<size_t> Read(std::span<std::byte> out) override {
    const size_t n = std::min<uint64_t>(out.size(), bytes_.size() - std::min<uint64_t>(at_, bytes_.size()));
    if (n > 0) std::memcpy(out.data(), bytes_.data() + at_, n);
    at_ += n;
    return n;
  }
  uint64_t consumed_bytes() const override { return at_; }

 private:
  const std::string bytes_;
  uint64_t at_;
};

class TextBytes final : public ByteSource {
 public:
  TextBytes(std::string name, std::unique_ptr<ByteSource> text, uint64_t text_bytes, uint64_t bytes)
      : name_(std::move(name)),
        text_(std::move(text)),
        text_left_(text_bytes),
        left_(bytes),
        window_(std::min<uint64_t>(kStepBytes, text_bytes)) {}

  Result<size_t> Read(std::span<std::byte> out) override {
    size_t filled = 0;
    while (filled < out.size()) {
      QUARRY_TRY(const int code, Next());
      if (code < 0) break;
      auto byte = static_cast<unsigned>(code);
      if (byte >= 0x80) {
        QUARRY_TRY(const int second, Next());
        if ((byte & 0xfe) != 0xc2 || second < 0x80 || second > 0xbf) {
          return MakeStatus(Code::kInvalidArgument,
                            "{}: the array's text is no bytes: {:#04x} after {} of them", name_, byte,
                            done_ + filled);
        }
        byte = (byte << 6 | (static_cast<unsigned>(second) & 0x3f)) & 0xff;
      }
      out[filled++] = static_cast<std::byte>(byte);
    }
    done_ += filled;
    left_ -= std::min<uint64_t>(left_, filled);
    if (left_ == 0 && (text_left_ > 0 || begin_ < end_)) {
      return MakeStatus(Code::kInvalidArgument, "{}: the array's text goes on behind its {} bytes", name_,
                        done_);
    }
    return filled;
  }
  uint64_t consumed_bytes() const override { return done_; }

 private:
  // -1 at the end.
  Result<int> Next() {
    if (begin_ == end_) {
      begin_ = 0;
      const std::span<std::byte> part(window_.data(), std::min<uint64_t>(window_.size(), text_left_));
      QUARRY_TRY(end_, text_->Read(part));
      text_left_ = end_ == 0 ? 0 : text_left_ - end_;
      if (end_ == 0) return -1;
    }
    return std::to_integer<int>(window_[begin_++]);
  }

  const std::string name_;
  const std::unique_ptr<ByteSource> text_;
  uint64_t text_left_;  // not read
  uint64_t left_;       // bytes that are still to come
  uint64_t done_ = 0;
  std::vector<std::byte> window_;
  size_t begin_ = 0;
  size_t end_ = 0;
};

class ColumnRows final : public ByteSource {
 public:
  ColumnRows(std::vector<std::unique_ptr<ByteSource>> columns, size_t item_bytes, uint64_t rows)
      : columns_(std::move(columns)),
        item_bytes_(item_bytes),
        rows_left_(rows),
        column_(std::min<uint64_t>(kStepBytes / item_bytes, rows) * item_bytes),
        window_(column_.size() * columns_.size()) {}

  Result<size_t> Read(std::span<std::byte> out) override {
    size_t filled = 0;
    while (filled < out.size()) {
      if (begin_ == end_) QUARRY_RETURN_IF_ERROR(Refill());
      if (end_ == 0) break;
      const size_t n = std::min(out.size() - filled, end_ - begin_);
      std::memcpy(out.data() + filled, window_.data() + begin_, n);
      begin_ += n;
      filled += n;
    }
    return filled;
  }
  uint64_t consumed_bytes() const override {
    uint64_t bytes = 0;
    for (const auto& column : columns_) bytes += column->consumed_bytes();
    return bytes;
  }

 private:
  Status Refill() {
    size_t rows = std::min<uint64_t>(rows_left_, column_.size() / item_bytes_);
    const size_t row_bytes = columns_.size() * item_bytes_;
    for (size_t i = 0; i < columns_.size() && rows > 0; i++) {
      QUARRY_TRY(const size_t got, columns_[i]->Read(std::span(column_).first(rows * item_bytes_)));
      rows = std::min(rows, got / item_bytes_);  // fewer where the file ends: who reads finds it
      for (size_t row = 0; row < rows; row++) {
        std::memcpy(window_.data() + row * row_bytes + i * item_bytes_, column_.data() + row * item_bytes_,
                    item_bytes_);
      }
    }
    rows_left_ = rows == 0 ? 0 : rows_left_ - rows;
    begin_ = 0;
    end_ = rows * row_bytes;
    return Status::Ok();
  }

  const std::vector<std::unique_ptr<ByteSource>> columns_;
  const size_t item_bytes_;
  uint64_t rows_left_;
  std::vector<std::byte> column_;  // the column's part of the rows in the window
  std::vector<std::byte> window_;
  size_t begin_ = 0;
  size_t end_ = 0;
};

}  // namespace

std::unique_ptr<ByteSource> OpenMemory(std::string bytes, uint64_t offset) {
  return std::make_unique<MemorySource>(std::move(bytes), offset);
}

std::unique_ptr<ByteSource> OpenTextBytes(std::string name, std::unique_ptr<ByteSource> text,
                                          uint64_t text_bytes, uint64_t bytes) {
  return std::make_unique<TextBytes>(std::move(name), std::move(text), text_bytes, bytes);
}

std::unique_ptr<ByteSource> OpenColumnRows(std::vector<std::unique_ptr<ByteSource>> columns,
                                           size_t item_bytes, uint64_t rows) {
  return std::make_unique<ColumnRows>(std::move(columns), item_bytes, rows);
}

}  // namespace quarry
