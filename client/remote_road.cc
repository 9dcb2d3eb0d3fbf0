#include "remote_road.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "quarry/base/fields.h"
#include "quarry/base/process.h"
#include "quarry/base/units.h"

namespace quarry {
namespace {

constexpr uint64_t kPieceRows = 65536;  // half a megabyte of labels: small beside any session's budget

template <typename T>
Status LookUpProperty(client::Store& store, const wire::Description& description, const std::string& name,
                      ElementType type, uint64_t snapshot, std::vector<T>& values) {
  const auto table = std::ranges::find(description.tables, name, &wire::TableInfo::name);
  if (table == description.tables.end()) return Status::Ok();
  if (table->row_count != description.node_count) {
    return MakeStatus(Code::kCorruption, "table '{}' has {} rows for {} nodes", name, table->row_count,
                      description.node_count);
  }
  const uint64_t piece_rows = std::min<uint64_t>(kPieceRows, description.limits.ids_max);
  values.resize(table->row_count);
  for (uint64_t row = 0; row < values.size(); row += piece_rows) {
    std::vector<NodeId> ids(std::min(piece_rows, values.size() - row));
    std::iota(ids.begin(), ids.end(), static_cast<NodeId>(row));
    QUARRY_TRY(const std::unique_ptr<client::Rows> rows,
               store.Lookup({.table = name, .ids = ids, .snapshot = snapshot}));
    if (rows->element_type() != type || rows->bytes().size() != ids.size() * sizeof(T)) {
      return MakeStatus(Code::kCorruption, "rows {} of table '{}' are {} bytes of {}, not {} of {}", row,
                        name, rows->bytes().size(), ElementTypeName(rows->element_type()),
                        ids.size() * sizeof(T), ElementTypeName(type));
    }
    std::memcpy(&values[row], rows->bytes().data(), rows->bytes().size());
  }
  return Status::Ok();
}

StreamStats StatsOf(const wire::Counters& counters) {
  StreamStats stats;
  ForEachField(stats, [&]<typename Field>(std::string_view name, Field& field) {
    const auto counter = std::ranges::find(counters.counters, name, &wire::Counter::name);
    if (counter != counters.counters.end()) field = static_cast<Field>(counter->value);
  });
  return stats;
}

class RemoteStream final : public BatchStream {
 public:
  RemoteStream(client::Stream& stream, uint64_t batch_count) : stream_(stream), batch_count_(batch_count) {}

  uint64_t batch_count() const override { return batch_count_; }

  Result<std::unique_ptr<Batch>> Next() override {
    const double start = MonotonicSeconds();
    QUARRY_TRY(std::unique_ptr<Batch> batch, stream_.Next());
    wait_seconds_ += MonotonicSeconds() - start;
    return batch;
  }

  // Figures of the road, so of all who share its batches. Nothing once the server cannot be asked any more.
  StreamStats stats() const override {
    const Result<wire::Counters> counters = stream_.Stats();
    StreamStats stats = counters.ok() ? StatsOf(*counters) : StreamStats();
    stats.consumer_wait_seconds = wait_seconds_;
    return stats;
  }

 private:
  client::Stream& stream_;
  const uint64_t batch_count_;
  double wait_seconds_ = 0;
};

}  // namespace

Result<NodeProperties> LookUpProperties(client::Store& store, const client::Snapshot& snapshot) {
  QUARRY_TRY(const wire::Description description, store.Describe());
  NodeProperties properties;
  QUARRY_RETURN_IF_ERROR(
      LookUpProperty(store, description, "label", ElementType::kInt64, snapshot.id(), properties.labels));
  QUARRY_RETURN_IF_ERROR(
      LookUpProperty(store, description, "split", ElementType::kUint8, snapshot.id(), properties.splits));
  return properties;
}

Result<std::vector<uint32_t>> LookUpDegrees(client::Store& store, Direction direction, uint64_t node_count) {
  std::string columns = direction == Direction::kOut ? "0, out_degree" : "in_degree, 0";
  if (direction == Direction::kBoth) columns = "in_degree, out_degree";
  QUARRY_TRY(const std::unique_ptr<client::RowCursor> rows,
             store.Query("SELECT id, " + columns + " FROM nodes"));
  std::vector<uint32_t> degrees(node_count, 0);
  const auto number = [&](size_t column) {
    const client::ValueView value = rows->value(column);
    const auto* const integer = std::get_if<int64_t>(&value);
    return integer != nullptr ? static_cast<uint64_t>(*integer) : 0;
  };
  for (;;) {
    QUARRY_TRY(const bool more, rows->Next());
    if (!more) return degrees;
    const uint64_t node = number(0);
    if (node >= node_count) {
      return MakeStatus(Code::kCorruption, "the database has node {} among {} nodes", node, node_count);
    }
    degrees[node] = static_cast<uint32_t>(std::min<uint64_t>(number(1) + number(2), UINT32_MAX));
  }
}

Result<std::unique_ptr<BatchStream>> RemoteRoad::StartPass(PassOptions options) {
  wire::StartPass request{.shuffle = options.shuffle, .pass = options.pass, .ordered = options.ordered};
  if (options.seeds == TrainNodes()) {
    request.seeds = Split::kTrain;
  } else if (options.seeds == SplitNodes(Split::kValid)) {
    request.seeds = Split::kValid;
  } else if (options.seeds == SplitNodes(Split::kTest)) {
    request.seeds = Split::kTest;
  } else {
    request.seeds = std::move(options.seeds);
  }
  return Start(std::move(request));
}

Result<std::unique_ptr<BatchStream>> RemoteRoad::StartSplit(Split split, PassOptions options) {
  return Start(
      {.seeds = split, .shuffle = options.shuffle, .pass = options.pass, .ordered = options.ordered});
}

Result<std::unique_ptr<BatchStream>> RemoteRoad::Start(wire::StartPass request) {
  QUARRY_TRY(const uint64_t batches, stream_->StartPass(std::move(request)));
  return std::unique_ptr<BatchStream>(
      std::make_unique<RemoteStream>(*stream_, CeilDiv(batches, uint64_t{sharers_})));
}

}  // namespace quarry
