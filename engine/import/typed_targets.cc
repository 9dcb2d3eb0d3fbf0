#include "typed_targets.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <vector>

namespace quarry {
namespace {

class JoinedTargets final : public RowReader {
 public:
  JoinedTargets(std::span<const NodeTypeInput> types, const RowReader& first)
      : types_(types),
        element_type_(first.element_type()),
        dim_(first.dim()),
        nothing_(RowBytes(element_type_, dim_)) {
    const std::vector<float> values(dim_, std::numeric_limits<float>::quiet_NaN());
    EncodeRow(element_type_, values, nothing_);
    for (const NodeTypeInput& type : types_) count_ += type.count;
  }

  ElementType element_type() const override { return element_type_; }
  uint64_t dim() const override { return dim_; }
  uint64_t row_count() const override { return count_; }

  Result<size_t> Read(std::span<std::byte> out) override {
    for (; type_ < types_.size(); ++type_, done_ = 0) {
      const NodeTypeInput& type = types_[type_];
      const uint64_t left = type.count - done_;
      if (left == 0) continue;
      const size_t wanted = std::min<uint64_t>(left, out.size() / nothing_.size());
      size_t n = wanted;
      if (type.targets == nullptr) {
        for (size_t i = 0; i < n; ++i)
          std::memcpy(out.data() + i * nothing_.size(), nothing_.data(), nothing_.size());
      } else {
        QUARRY_TRY(n, type.targets->Read(out.first(wanted * nothing_.size())));
        if (n == 0) {
          return MakeStatus(Code::kInvalidArgument,
                            "{}: there are no more targets, and {} nodes of type '{}'",
                            type.targets->Position(done_), type.count, type.name);
        }
      }
      read_type_ = type_;
      before_ = read_ - done_;
      read_ += n;
      done_ += n;
      return n;
    }
    return size_t{0};
  }
  std::string Position(uint64_t row) const override {
    const RowReader* const rows = types_[read_type_].targets.get();
    return rows == nullptr ? types_[read_type_].name : rows->Position(row - before_);
  }

 private:
  const std::span<const NodeTypeInput> types_;
  const ElementType element_type_;
  const uint64_t dim_;
  std::vector<std::byte> nothing_;  // a row of NaN
  uint64_t count_ = 0;
  size_t type_ = 0;    // what is read next
  uint64_t done_ = 0;  // rows of it
  uint64_t read_ = 0;  // rows of all
  size_t read_type_ = 0;
  uint64_t before_ = 0;  // rows of the types before it
};

}  // namespace

Result<std::unique_ptr<RowReader>> JoinTargets(std::span<const NodeTypeInput> types) {
  const NodeTypeInput* first = nullptr;
  for (const NodeTypeInput& type : types) {
    if (type.targets == nullptr) continue;
    const RowReader& rows = *type.targets;
    if (rows.row_count() != type.count) {
      return MakeStatus(Code::kInvalidArgument, "{}: {} rows of targets for {} nodes of type '{}'",
                        rows.Position(0), rows.row_count(), type.count, type.name);
    }
    if (first == nullptr) first = &type;
    if (rows.dim() == first->targets->dim() && rows.element_type() == first->targets->element_type())
      continue;
    return MakeStatus(
        Code::kInvalidArgument,
        "{}: targets of type '{}' are {} x {}, those of type '{}' {} x {}: they are one table, so save them "
        "alike",
        rows.Position(0), type.name, rows.dim(), ElementTypeName(rows.element_type()), first->name,
        first->targets->dim(), ElementTypeName(first->targets->element_type()));
  }
  if (first == nullptr) return std::unique_ptr<RowReader>();
  return std::unique_ptr<RowReader>(std::make_unique<JoinedTargets>(types, *first->targets));
}

}  // namespace quarry
