// The typed readers over stored arrays: edges, rows, integers.
#include <algorithm>
#include <cstring>

#include "npy_reader.h"

namespace quarry {
namespace {

Status NegativeId(const std::string& name, uint64_t edge, int64_t source, int64_t destination) {
  return MakeStatus(Code::kInvalidArgument, "{}: edge {} has the negative node id {}", name, edge,
                    source < 0 ? source : destination);
}

// Sources and destinations by separate cursors: [2, E], and two arrays.
class TwoCursorEdges final : public EdgeReader {
 public:
  TwoCursorEdges(std::string name, std::unique_ptr<IntCursor> sources,
                 std::unique_ptr<IntCursor> destinations, uint64_t count, uint64_t bytes_total)
      : name_(std::move(name)),
        sources_(std::move(sources)),
        destinations_(std::move(destinations)),
        count_(count),
        bytes_total_(bytes_total),
        source_ids_(std::min<uint64_t>(kStepItems, count)),
        destination_ids_(source_ids_.size()) {}

  Result<size_t> Read(std::span<Edge> out) override {
    const std::span<int64_t> sources(source_ids_.data(), std::min(out.size(), source_ids_.size()));
    QUARRY_TRY(const size_t n, sources_->Read(sources));
    const std::span<int64_t> destinations(destination_ids_.data(), n);
    QUARRY_TRY(const size_t destination_count, destinations_->Read(destinations));
    if (destination_count != n) {
      return MakeStatus(Code::kInvalidArgument, "{}: edge {} has no destination", name_,
                        next_ + destination_count);
    }
    int64_t signs = 0;
    for (size_t i = 0; i < n; i++) {
      signs |= sources[i] | destinations[i];
      out[i] = {static_cast<uint64_t>(sources[i]), static_cast<uint64_t>(destinations[i])};
    }
    for (size_t i = 0; signs < 0 && i < n; i++) {
      if ((sources[i] | destinations[i]) < 0)
        return NegativeId(name_, next_ + i, sources[i], destinations[i]);
    }
    next_ += n;
    return n;
  }
  std::optional<uint64_t> count() const override { return count_; }
  uint64_t bytes_read() const override {
    return sources_->consumed_bytes() + destinations_->consumed_bytes();
  }
  uint64_t bytes_total() const override { return bytes_total_; }
  std::string Position(uint64_t edge) const override { return fmt::format("{}: edge {}", name_, edge); }

 private:
  const std::string name_;
  const std::unique_ptr<IntCursor> sources_, destinations_;
  const uint64_t count_;
  const uint64_t bytes_total_;
  std::vector<int64_t> source_ids_, destination_ids_;
  uint64_t next_ = 0;
};

// [E, 2]
class InterleavedEdges final : public EdgeReader {
 public:
  InterleavedEdges(std::string name, std::unique_ptr<IntCursor> ids, uint64_t count, uint64_t bytes_total)
      : name_(std::move(name)),
        cursor_(std::move(ids)),
        count_(count),
        bytes_total_(bytes_total),
        ids_(2 * std::min<uint64_t>(kStepItems, count)) {}

  Result<size_t> Read(std::span<Edge> out) override {
    const std::span<int64_t> ids(ids_.data(), std::min(2 * out.size(), ids_.size()));
    QUARRY_TRY(const size_t id_count, cursor_->Read(ids));
    const size_t n = id_count / 2;
    for (size_t i = 0; i < n; i++) {
      if ((ids[2 * i] | ids[2 * i + 1]) < 0) return NegativeId(name_, next_ + i, ids[2 * i], ids[2 * i + 1]);
      out[i] = {static_cast<uint64_t>(ids[2 * i]), static_cast<uint64_t>(ids[2 * i + 1])};
    }
    next_ += n;
    return n;
  }
  std::optional<uint64_t> count() const override { return count_; }
  uint64_t bytes_read() const override { return cursor_->consumed_bytes(); }
  uint64_t bytes_total() const override { return bytes_total_; }
  std::string Position(uint64_t edge) const override { return fmt::format("{}: edge {}", name_, edge); }

 private:
  const std::string name_;
  const std::unique_ptr<IntCursor> cursor_;
  const uint64_t count_;
  const uint64_t bytes_total_;
  std::vector<int64_t> ids_;
  uint64_t next_ = 0;
};

class ArrayRows final : public RowReader {
 public:
  ArrayRows(const NpyArray& array, std::unique_ptr<ByteSource> source, ElementType type, bool narrow)
      : name_(array.name),
        source_(std::move(source)),
        type_(type),
        narrow_(narrow),
        row_count_(array.extent(0)),
        dim_(array.dims() == 2 ? array.extent(1) : 1) {}

  ElementType element_type() const override { return type_; }
  uint64_t dim() const override { return dim_; }
  uint64_t row_count() const override { return row_count_; }
  std::string Position(uint64_t row) const override { return fmt::format("{}: row {}", name_, row); }

  Result<size_t> Read(std::span<std::byte> out) override {
    const uint64_t row_bytes = dim_ * ElementBytes(type_);
    const uint64_t rows = std::min<uint64_t>(out.size() / row_bytes, row_count_ - next_);
    const std::span<std::byte> part = out.first(rows * row_bytes);
    QUARRY_RETURN_IF_ERROR(narrow_ ? ReadNarrowed(part) : ReadWhole(part));
    next_ += rows;
    return rows;
  }

 private:
  Status ReadWhole(std::span<std::byte> out) {
    QUARRY_TRY(const size_t got, source_->Read(out));
    if (got == out.size()) return Status::Ok();
    return MakeStatus(Code::kInvalidArgument, "{}: ends early, within {} rows from row {} on", name_,
                      row_count_, next_);
  }

  Status ReadNarrowed(std::span<std::byte> out) {
    wide_.resize(std::min<size_t>(out.size() / sizeof(float), kStepItems));
    while (!out.empty()) {
      const size_t n = std::min(out.size() / sizeof(float), wide_.size());
      QUARRY_RETURN_IF_ERROR(ReadWhole(std::as_writable_bytes(std::span(wide_).first(n))));
      for (size_t i = 0; i < n; i++) {
        const auto value = static_cast<float>(wide_[i]);
        std::memcpy(out.data() + i * sizeof(float), &value, sizeof(float));
      }
      out = out.subspan(n * sizeof(float));
    }
    return Status::Ok();
  }

  const std::string name_;
  const std::unique_ptr<ByteSource> source_;
  const ElementType type_;
  const bool narrow_;  // float64 in the file
  const uint64_t row_count_;
  const uint64_t dim_;
  std::vector<double> wide_;
  uint64_t next_ = 0;
};

// Whole numbers, or truths, as rows of float32.
class IntegerRows final : public RowReader {
 public:
  IntegerRows(const NpyArray& array, std::unique_ptr<ByteSource> source)
      : name_(array.name),
        source_(std::move(source)),
        type_(array.header.type),
        row_count_(array.extent(0)),
        dim_(array.dims() == 2 ? array.extent(1) : 1) {}

  ElementType element_type() const override { return ElementType::kFloat32; }
  uint64_t dim() const override { return dim_; }
  uint64_t row_count() const override { return row_count_; }
  std::string Position(uint64_t row) const override { return fmt::format("{}: row {}", name_, row); }

  Result<size_t> Read(std::span<std::byte> out) override {
    const uint64_t rows = std::min<uint64_t>(out.size() / (dim_ * sizeof(float)), row_count_ - next_);
    raw_.resize(rows * dim_ * type_.bytes);
    QUARRY_TRY(const size_t got, source_->Read(raw_));
    if (got != raw_.size()) {
      return MakeStatus(Code::kInvalidArgument, "{}: ends early, within {} rows from row {} on", name_,
                        row_count_, next_);
    }
    for (uint64_t i = 0; i < rows * dim_; i++) {
      const float value = ValueOf(raw_.data() + i * type_.bytes);
      std::memcpy(out.data() + i * sizeof(float), &value, sizeof(float));
    }
    next_ += rows;
    return rows;
  }

 private:
  template <typename Integer>
  static float As(const std::byte* from) {
    Integer value;
    std::memcpy(&value, from, sizeof(value));
    return static_cast<float>(value);
  }
  float ValueOf(const std::byte* from) const {
    const bool is_signed = type_.kind == 'i';
    switch (type_.bytes) {
      case 1:
        return is_signed ? As<int8_t>(from) : As<uint8_t>(from);
      case 2:
        return is_signed ? As<int16_t>(from) : As<uint16_t>(from);
      case 4:
        return is_signed ? As<int32_t>(from) : As<uint32_t>(from);
      default:
        return is_signed ? As<int64_t>(from) : As<uint64_t>(from);
    }
  }

  const std::string name_;
  const std::unique_ptr<ByteSource> source_;
  const NpyType type_;
  const uint64_t row_count_;
  const uint64_t dim_;
  std::vector<std::byte> raw_;
  uint64_t next_ = 0;
};

class ArrayInts final : public IntReader {
 public:
  ArrayInts(std::string name, std::unique_ptr<IntCursor> cursor, uint64_t count)
      : name_(std::move(name)), cursor_(std::move(cursor)), count_(count) {}
  Result<size_t> Read(std::span<int64_t> out) override { return cursor_->Read(out); }
  std::optional<uint64_t> count() const override { return count_; }
  std::string Position(uint64_t index) const override { return fmt::format("{}: row {}", name_, index); }

 private:
  const std::string name_;
  const std::unique_ptr<IntCursor> cursor_;
  const uint64_t count_;
};

// A bool mask as the ids of its true items.
class MaskInts final : public IntReader {
 public:
  MaskInts(std::string name, std::unique_ptr<ByteSource> source, uint64_t items)
      : name_(std::move(name)),
        source_(std::move(source)),
        items_(items),
        raw_(std::min<uint64_t>(kStepItems, items)) {}

  Result<size_t> Read(std::span<int64_t> out) override {
    size_t filled = 0;
    while (filled < out.size()) {
      if (at_ == have_) {
        base_ += have_;
        at_ = have_ = 0;
        const std::span<std::byte> part(raw_.data(), std::min<uint64_t>(raw_.size(), items_ - base_));
        if (part.empty()) break;
        QUARRY_TRY(have_, source_->Read(part));
        if (have_ < part.size()) return MakeStatus(Code::kInvalidArgument, "{}: ends early", name_);
      }
      if (raw_[at_] != std::byte{0}) out[filled++] = static_cast<int64_t>(base_ + at_);
      at_++;
    }
    return filled;
  }
  std::optional<uint64_t> count() const override { return std::nullopt; }
  // The number of the true item is not its place, but the place is the value, which messages name anyway.
  std::string Position(uint64_t) const override { return name_; }

 private:
  const std::string name_;
  const std::unique_ptr<ByteSource> source_;
  const uint64_t items_;
  std::vector<std::byte> raw_;
  uint64_t base_ = 0;  // number of raw_[0] in the mask
  size_t at_ = 0;
  size_t have_ = 0;
};

Status WrongShape(const NpyArray& array, std::string_view expected) {
  return MakeStatus(Code::kInvalidArgument, "{}: has shape {}; expected {}", array.name, array.ShapeText(),
                    expected);
}

// [2, E], rows first.
Result<std::unique_ptr<EdgeReader>> MakeTwoRowReader(const NpyArray& edges) {
  const uint64_t count = edges.extent(1);
  QUARRY_TRY(auto sources, IntCursor::Open(edges, 0, count, IntRole::kId));
  QUARRY_TRY(auto destinations, IntCursor::Open(edges, count, count, IntRole::kId));
  return std::unique_ptr<EdgeReader>(std::make_unique<TwoCursorEdges>(
      edges.name, std::move(sources), std::move(destinations), count, edges.header.data_bytes()));
}

}  // namespace

Result<std::unique_ptr<EdgeReader>> MakeEdgeReader(const NpyArray& edges) {
  const bool pair_of_rows = edges.dims() == 2 && edges.extent(0) == 2;
  if (!pair_of_rows && !(edges.dims() == 2 && edges.extent(1) == 2)) {
    return WrongShape(edges, "[2, E] (sources, then destinations) or [E, 2]");
  }
  // Columns first, [2, E] lies as [E, 2] does rows first, and the other way round.
  if (edges.header.fortran) {
    return pair_of_rows ? MakePairReader(Transposed(edges)) : MakeTwoRowReader(Transposed(edges));
  }
  return pair_of_rows ? MakeTwoRowReader(edges) : MakePairReader(edges);
}

Result<std::unique_ptr<EdgeReader>> MakePairReader(const NpyArray& pairs) {
  if (pairs.dims() != 2 || pairs.extent(1) != 2) return WrongShape(pairs, "[E, 2]");
  if (pairs.header.fortran) return MakeTwoRowReader(Transposed(pairs));
  QUARRY_TRY(auto ids, IntCursor::Open(pairs, 0, pairs.header.items, IntRole::kId));
  return std::unique_ptr<EdgeReader>(std::make_unique<InterleavedEdges>(
      pairs.name, std::move(ids), pairs.extent(0), pairs.header.data_bytes()));
}

Result<std::unique_ptr<EdgeReader>> MakeEdgeReader(const NpyArray& sources, const NpyArray& destinations) {
  if (sources.dims() != 1) return WrongShape(sources, "[E]");
  if (destinations.header.shape != sources.header.shape) {
    return WrongShape(destinations, fmt::format("{} as in {}", sources.ShapeText(), sources.name));
  }
  const uint64_t count = sources.header.items;
  QUARRY_TRY(auto source_ids, IntCursor::Open(sources, 0, count, IntRole::kId));
  QUARRY_TRY(auto destination_ids, IntCursor::Open(destinations, 0, count, IntRole::kId));
  return std::unique_ptr<EdgeReader>(
      std::make_unique<TwoCursorEdges>(sources.name, std::move(source_ids), std::move(destination_ids), count,
                                       sources.header.data_bytes() + destinations.header.data_bytes()));
}

Result<std::unique_ptr<RowReader>> MakeRowReader(const NpyArray& rows, bool u2_is_bfloat16) {
  if (rows.dims() != 1 && rows.dims() != 2) return WrongShape(rows, "[N, D]");
  if (rows.dims() == 2 && rows.extent(1) == 0) return WrongShape(rows, "[N, D] with D at least 1");
  const NpyType& type = rows.header.type;
  ElementType element = ElementType::kFloat32;
  const bool bfloat16 = type.kind == 'B' || (type.kind == 'u' && type.bytes == 2 && u2_is_bfloat16);
  if (type.kind == 'f' && type.bytes == 2) element = ElementType::kFloat16;
  if (bfloat16) element = ElementType::kBfloat16;
  if (type.kind != 'f' && !bfloat16) {
    const bool maybe_bfloat16 = type.kind == 'u' && type.bytes == 2;
    return MakeStatus(Code::kInvalidArgument, "{}: features have dtype '{}'; {}", rows.name, type.name,
                      maybe_bfloat16 ? "say --bf16 if these are bfloat16, or save them as float32"
                                     : "save them as float32, float16 or float64");
  }
  QUARRY_TRY(auto source, rows.open(0));
  return std::unique_ptr<RowReader>(
      std::make_unique<ArrayRows>(rows, std::move(source), element, type.bytes == 8));
}

Result<std::unique_ptr<RowReader>> MakeTargetReader(const NpyArray& rows) {
  const NpyType& type = rows.header.type;
  const bool whole = type.kind == 'i' || type.kind == 'u' || type.kind == 'b';
  if (!whole && type.kind != 'f') {
    return MakeStatus(Code::kInvalidArgument, "{}: targets have dtype '{}'; save them as float32 or int64",
                      rows.name, type.name);
  }
  if (!whole) return MakeRowReader(rows, false);
  if (rows.dims() != 1 && !(rows.dims() == 2 && rows.extent(1) > 0)) {
    return WrongShape(rows, "[N] or [N, D] with D at least 1");
  }
  QUARRY_TRY(auto source, rows.open(0));
  return std::unique_ptr<RowReader>(std::make_unique<IntegerRows>(rows, std::move(source)));
}

Result<std::unique_ptr<IntReader>> MakeIntReader(const NpyArray& values, IntRole role) {
  if (values.dims() != 1 && !(values.dims() == 2 && values.extent(1) == 1)) {
    return WrongShape(values,
                      role == IntRole::kLabel ? "[N], one class a node" : "[n], node ids or a bool mask");
  }
  const uint64_t count = values.header.items;
  if (role == IntRole::kId && values.header.type.kind == 'b') {
    QUARRY_TRY(auto source, values.open(0));
    return std::unique_ptr<IntReader>(std::make_unique<MaskInts>(values.name, std::move(source), count));
  }
  QUARRY_TRY(auto cursor, IntCursor::Open(values, 0, count, role));
  return std::unique_ptr<IntReader>(std::make_unique<ArrayInts>(values.name, std::move(cursor), count));
}

}  // namespace quarry
