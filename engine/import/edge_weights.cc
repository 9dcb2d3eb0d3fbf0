#include "edge_weights.h"

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "dataset_parts.h"
#include "text_lines.h"

namespace quarry {
namespace {

// Weights in file order, finite.
class WeightReader {
 public:
  virtual ~WeightReader() = default;
  virtual Result<size_t> Read(std::span<float> out) = 0;  // 0 at the end
  virtual std::optional<uint64_t> count() const = 0;      // when the format tells
  virtual const std::string& name() const = 0;
};

class ArrayWeights final : public WeightReader {
 public:
  static Result<std::unique_ptr<WeightReader>> Make(const NpyArray& array) {
    if (array.dims() != 1 && !(array.dims() == 2 && array.extent(1) == 1)) {
      return MakeStatus(Code::kInvalidArgument, "{}: has shape {}; expected [E], a weight for each edge",
                        array.name, array.ShapeText());
    }
    QUARRY_TRY(auto values, FloatCursor::Open(array));
    return std::unique_ptr<WeightReader>(new ArrayWeights(array, std::move(values)));
  }
  Result<size_t> Read(std::span<float> out) override {
    QUARRY_TRY(const size_t n, values_->Read(out));
    for (size_t i = 0; i < n; i++) {
      if (std::isfinite(out[i])) continue;
      return MakeStatus(Code::kInvalidArgument, "{}: row {}: {} is not a weight (a finite number)", name_,
                        next_ + i, out[i]);
    }
    next_ += n;
    return n;
  }
  std::optional<uint64_t> count() const override { return count_; }
  const std::string& name() const override { return name_; }

 private:
  ArrayWeights(const NpyArray& array, std::unique_ptr<FloatCursor> values)
      : name_(array.name), count_(array.header.items), values_(std::move(values)) {}
  const std::string name_;
  const uint64_t count_;
  const std::unique_ptr<FloatCursor> values_;
  uint64_t next_ = 0;
};

// One a line.
class TextWeights final : public WeightReader {
 public:
  explicit TextWeights(std::unique_ptr<LineReader> lines) : lines_(std::move(lines)) {}
  Result<size_t> Read(std::span<float> out) override {
    size_t filled = 0;
    std::string_view line;
    while (filled < out.size() && lines_->Next(&line)) {
      const std::string_view field = Trim(line);
      if (field.empty()) continue;
      if (!ParseWeight(field, &out[filled])) return NotAWeight(*lines_, field);
      filled++;
    }
    QUARRY_RETURN_IF_ERROR(lines_->status());
    return filled;
  }
  std::optional<uint64_t> count() const override { return std::nullopt; }
  const std::string& name() const override { return lines_->path(); }

 private:
  const std::unique_ptr<LineReader> lines_;
};

class EdgesAndWeights final : public EdgeReader {
 public:
  EdgesAndWeights(std::unique_ptr<EdgeReader> edges, std::unique_ptr<WeightReader> weights)
      : edge_reader_(std::move(edges)), weight_reader_(std::move(weights)) {}

  Result<size_t> Read(std::span<Edge> out) override {
    QUARRY_TRY(const size_t n, edge_reader_->Read(out.first(std::min(out.size(), kStepItems))));
    // Behind the last edge there must be none.
    weights_.resize(std::max<size_t>(1, n));
    size_t got = 0;
    for (size_t step = 1; step > 0 && got < weights_.size(); got += step) {
      QUARRY_TRY(step, weight_reader_->Read(std::span(weights_).subspan(got)));
    }
    weights_.resize(n);
    if (got < n) {
      return MakeStatus(Code::kInvalidArgument, "{}: has no weight; {} holds {} of them",
                        edge_reader_->Position(next_ + got), weight_reader_->name(), next_ + got);
    }
    if (got > n) {
      return MakeStatus(Code::kInvalidArgument, "{}: holds a weight beyond the {} edges",
                        weight_reader_->name(), next_);
    }
    next_ += n;
    return n;
  }
  std::optional<uint64_t> count() const override { return edge_reader_->count(); }
  uint64_t bytes_read() const override { return edge_reader_->bytes_read(); }
  uint64_t bytes_total() const override { return edge_reader_->bytes_total(); }
  std::string Position(uint64_t edge) const override { return edge_reader_->Position(edge); }
  bool weighted() const override { return true; }
  std::span<const float> weights() const override { return weights_; }

 private:
  const std::unique_ptr<EdgeReader> edge_reader_;
  const std::unique_ptr<WeightReader> weight_reader_;
  std::vector<float> weights_;
  uint64_t next_ = 0;
};

Result<std::unique_ptr<EdgeReader>> Join(std::unique_ptr<EdgeReader> edges,
                                         std::unique_ptr<WeightReader> weights) {
  if (edges->weighted()) {
    return MakeStatus(Code::kInvalidArgument,
                      "{}: holds weights of edges that have weights already; remove one", weights->name());
  }
  const std::optional<uint64_t> edge_count = edges->count();
  const std::optional<uint64_t> weight_count = weights->count();
  if (edge_count.has_value() && weight_count.has_value() && *edge_count != *weight_count) {
    return MakeStatus(Code::kInvalidArgument, "{}: {} weights for {} edges", weights->name(), *weight_count,
                      *edge_count);
  }
  return std::unique_ptr<EdgeReader>(std::make_unique<EdgesAndWeights>(std::move(edges), std::move(weights)));
}

}  // namespace

std::string WeightsBeside(const std::string& edges_path) {
  std::filesystem::path path(edges_path);
  if (path.extension() == ".gz") path.replace_extension();
  const std::string stem = path.stem().string();
  constexpr std::string_view kEdges = "edges";
  std::string name;
  if (stem == "edge") name = "edge_weight";
  if (stem == kEdges || stem.starts_with("edges_")) name = "edge_weights" + stem.substr(kEdges.size());
  if (name.empty()) return name;
  return FirstFile(path.replace_filename(name).string(), {".npy", ".csv", ".csv.gz"});
}

Result<std::unique_ptr<EdgeReader>> WithWeights(std::unique_ptr<EdgeReader> edges,
                                                const std::string& weights_path) {
  if (weights_path.empty()) return edges;
  if (weights_path.ends_with(".npy")) {
    QUARRY_TRY(const NpyArray weights, OpenNpy(weights_path));
    return WithWeights(std::move(edges), weights);
  }
  QUARRY_TRY(auto lines, LineReader::Open(weights_path));
  return Join(std::move(edges), std::make_unique<TextWeights>(std::move(lines)));
}

Result<std::unique_ptr<EdgeReader>> WithWeights(std::unique_ptr<EdgeReader> edges, const NpyArray& weights) {
  QUARRY_TRY(auto reader, ArrayWeights::Make(weights));
  return Join(std::move(edges), std::move(reader));
}

Result<std::unique_ptr<EdgeReader>> WithArchivedWeights(std::unique_ptr<EdgeReader> edges,
                                                        const ArrayArchive& archive,
                                                        const std::vector<std::string>& keys) {
  const std::string key = archive.FirstOf(keys);
  if (key.empty()) return edges;
  QUARRY_TRY(const NpyArray weights, archive.Open(key));
  return WithWeights(std::move(edges), weights);
}

Result<bool> AnyButOnes(const NpyArray& values) {
  QUARRY_TRY(const auto cursor, FloatCursor::Open(values));
  std::vector<float> batch(kStepItems);
  while (true) {
    QUARRY_TRY(const size_t n, cursor->Read(batch));
    if (n == 0) return false;
    if (std::any_of(batch.begin(), batch.begin() + static_cast<ptrdiff_t>(n),
                    [](float value) { return value != 1; })) {
      return true;
    }
  }
}

}  // namespace quarry
