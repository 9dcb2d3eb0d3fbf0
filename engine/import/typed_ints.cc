#include "typed_ints.h"

#include <algorithm>
#include <utility>

namespace quarry {
namespace {

class JoinedSplits final : public IntReader {
 public:
  JoinedSplits(std::span<const NodeTypeInput> types, std::unique_ptr<IntReader> NodeTypeInput::*split)
      : types_(types), split_(split) {}

  Result<size_t> Read(std::span<int64_t> out) override {
    while (type_ < types_.size()) {
      const NodeTypeInput& type = types_[type_];
      IntReader* const ids = (type.*split_).get();
      size_t n = 0;
      if (ids != nullptr) {
        QUARRY_TRY(n, ids->Read(out));
      }
      if (n > 0) {
        read_begin_ = read_end_;
        read_end_ += n;
        for (size_t i = 0; i < n; ++i) {
          if (out[i] < 0 || static_cast<uint64_t>(out[i]) >= type.count) {
            return MakeStatus(Code::kInvalidArgument,
                              "{}: node id {} is out of range; there are {} nodes of type '{}'",
                              ids->Position(own_ + i), out[i], type.count, type.name);
          }
          out[i] += static_cast<int64_t>(first_);
        }
        own_begin_ = own_;
        own_ += n;
        at_ = type_;
        return n;
      }
      first_ += type.count;
      own_ = 0;
      ++type_;
    }
    return size_t{0};
  }
  std::optional<uint64_t> count() const override {
    uint64_t sum = 0;
    for (const NodeTypeInput& type : types_) {
      if ((type.*split_) == nullptr) continue;
      const std::optional<uint64_t> of_type = (type.*split_)->count();
      if (!of_type.has_value()) return std::nullopt;
      sum += *of_type;
    }
    return sum;
  }
  std::string Position(uint64_t index) const override {
    return (types_[at_].*split_)->Position(own_begin_ + index - read_begin_);
  }

 private:
  const std::span<const NodeTypeInput> types_;
  std::unique_ptr<IntReader> NodeTypeInput::*const split_;
  size_t type_ = 0;          // what is read next, of which
  uint64_t own_ = 0;         // so many ids are read
  uint64_t first_ = 0;       // node of the type
  size_t at_ = 0;            // the type of the last read,
  uint64_t own_begin_ = 0;   // its first id among the type's,
  uint64_t read_begin_ = 0;  // and among all
  uint64_t read_end_ = 0;
};

}  // namespace

TypedLabels::TypedLabels(std::span<const NodeTypeInput> types) : types_(types), class_counts_(types.size()) {
  for (const NodeTypeInput& type : types) count_ += type.count;
}

Result<size_t> TypedLabels::Read(std::span<int64_t> out) {
  while (type_ < types_.size()) {
    const NodeTypeInput& type = types_[type_];
    if (done_ == type.count) {
      QUARRY_RETURN_IF_ERROR(CheckEnd(type));
      ++type_;
      done_ = 0;
      continue;
    }
    const std::span<int64_t> part = out.first(std::min<uint64_t>(out.size(), type.count - done_));
    size_t n = part.size();
    if (type.labels == nullptr) {
      std::ranges::fill(part, -1);
    } else {
      QUARRY_TRY(n, type.labels->Read(part));
      if (n == 0) {
        return MakeStatus(Code::kInvalidArgument, "{} labels of type '{}', which has {} nodes", done_,
                          type.name, type.count);
      }
    }
    for (const int64_t label : part.first(n)) {
      class_counts_[type_] =
          std::max(class_counts_[type_], static_cast<uint64_t>(std::max<int64_t>(label, -1) + 1));
    }
    done_ += n;
    return n;
  }
  return size_t{0};
}

Status TypedLabels::CheckEnd(const NodeTypeInput& type) {
  if (type.labels == nullptr) return Status::Ok();
  int64_t more = 0;
  QUARRY_TRY(const size_t n, type.labels->Read({&more, 1}));
  if (n == 0) return Status::Ok();
  return MakeStatus(Code::kInvalidArgument, "{}: more labels than the {} nodes of type '{}'",
                    type.labels->Position(type.count), type.count, type.name);
}

std::string TypedLabels::Position(uint64_t index) const {
  for (const NodeTypeInput& type : types_) {
    if (index < type.count) {
      return type.labels == nullptr ? fmt::format("node {} of type '{}'", index, type.name)
                                    : type.labels->Position(index);
    }
    index -= type.count;
  }
  return fmt::format("node {} behind all types", index);
}

std::unique_ptr<IntReader> JoinSplits(std::span<const NodeTypeInput> types,
                                      std::unique_ptr<IntReader> NodeTypeInput::*split) {
  const bool any =
      std::ranges::any_of(types, [&](const NodeTypeInput& type) { return (type.*split) != nullptr; });
  return any ? std::make_unique<JoinedSplits>(types, split) : nullptr;
}

}  // namespace quarry
