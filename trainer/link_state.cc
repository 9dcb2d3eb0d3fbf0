#include "link_state.h"

#include <algorithm>
#include <functional>
#include <numeric>

#include "link_encoder.h"
#include "quarry/format/fanouts.h"
#include "state_bytes.h"

namespace quarry {
namespace {

constexpr uint32_t kLinkTask = 2;
// The versions of states without vectors and with them, and of two such states, the last and the best.
constexpr uint32_t kPlaceVersion = 1, kVectorsVersion = 2, kBestVersion = 3;

// Task, version and place; where vectors follow, the timestamp and the size of what is learned beside them.
constexpr uint64_t kPlaceBytes =
    3 * sizeof(uint32_t) + sizeof(uint64_t) + 2 * sizeof(double) + sizeof(uint32_t);
constexpr uint64_t kVectorsBytes = kPlaceBytes + sizeof(int64_t) + sizeof(uint64_t);
// Task, version, the best's metrics, and the size of the last one's state.
constexpr uint64_t kBestBytes =
    2 * sizeof(uint32_t) + 2 * (sizeof(uint64_t) + 4 * sizeof(double)) + sizeof(uint64_t);
// What a table has before its rows.
constexpr uint64_t kSpecBytes = 2 * sizeof(uint64_t) + sizeof(uint32_t) + 3 + sizeof(float);

std::string_view OptimizerName(OptimizerKind kind) {
  switch (kind) {
    case OptimizerKind::kSgd:
      return "sgd";
    case OptimizerKind::kAdagrad:
      return "adagrad";
    case OptimizerKind::kAdam:
      return "adam";
  }
  return "";
}

std::string EncoderSettings(const LinkTrainOptions& train) {
  if (train.encoder_fanouts.empty()) return "--encoder none";
  // "--encoder" in place of "--model", and the model's own settings.
  const std::string model = ToSettings(train.encoder).substr(std::string_view("--model ").size());
  std::string fanouts;
  for (const uint32_t fanout : train.encoder_fanouts)
    fanouts += (fanouts.empty() ? "" : ",") + FanoutName(fanout);
  return fmt::format("--encoder {} --fanout {} --encoder-lr {}", model, fanouts, train.encoder_learning_rate);
}

uint64_t RowStateBytes(const EmbeddingSpec& spec) {
  return sizeof(int64_t) + (uint64_t{spec.dim} + spec.state_dim()) * sizeof(float);
}

uint64_t TableStateBytes(const EmbeddingSpec& spec) {
  return kSpecBytes + spec.row_count * RowStateBytes(spec);
}

// Set in the count of validations where they came behind the place, and not before it.
constexpr uint32_t kBehindPlace = uint32_t{1} << 31;

void PutPlace(const LinkPlace& place, StateWriter& writer) {
  writer.Put(place.epoch);
  writer.Put(place.batches);
  writer.Put(place.loss);
  writer.Put(place.best_mrr);
  writer.Put(place.validations_behind > 0 ? place.validations_behind | kBehindPlace
                                          : place.validations_since_best);
}

LinkPlace GetPlace(StateReader& reader) {
  LinkPlace place;
  place.epoch = reader.Get<uint32_t>();
  place.batches = reader.Get<uint64_t>();
  place.loss = reader.Get<double>();
  place.best_mrr = reader.Get<double>();
  const auto validations = reader.Get<uint32_t>();
  const bool behind = (validations & kBehindPlace) != 0;
  (behind ? place.validations_behind : place.validations_since_best) = validations & ~kBehindPlace;
  return place;
}

void PutMetrics(const LinkMetrics& metrics, StateWriter& writer) {
  writer.Put(metrics.rankings);
  for (const double value : {metrics.mrr, metrics.hits_1, metrics.hits_3, metrics.hits_10}) writer.Put(value);
}

LinkMetrics GetMetrics(StateReader& reader) {
  LinkMetrics metrics{.rankings = reader.Get<uint64_t>()};
  for (double* value : {&metrics.mrr, &metrics.hits_1, &metrics.hits_3, &metrics.hits_10}) {
    *value = reader.Get<double>();
  }
  return metrics;
}

void PutSpec(const EmbeddingSpec& spec, StateWriter& writer) {
  writer.Put(spec.row_count);
  writer.Put(spec.dim);
  writer.Put(static_cast<uint8_t>(spec.element_type));
  writer.Put(static_cast<uint8_t>(spec.optimizer));
  writer.Put(static_cast<uint8_t>(spec.init));
  writer.Put(spec.init_scale);
  writer.Put(spec.seed);
}

// Rows that nobody has written are not in the table that takes them back, so it must make the same.
Status CheckSpec(const EmbeddingSpec& spec, StateReader& reader) {
  const auto rows = reader.Get<uint64_t>();
  const auto dim = reader.Get<uint32_t>();
  const auto element_type = static_cast<ElementType>(reader.Get<uint8_t>());
  const auto optimizer = static_cast<OptimizerKind>(reader.Get<uint8_t>());
  const auto init = static_cast<InitKind>(reader.Get<uint8_t>());
  const auto init_scale = reader.Get<float>();
  const auto seed = reader.Get<uint64_t>();
  QUARRY_RETURN_IF_ERROR(reader.status());
  if (rows != spec.row_count || dim != spec.dim) {
    return MakeStatus(Code::kInvalidArgument,
                      "the state has {} vectors of {} floats where there are {} of {} now", rows, dim,
                      spec.row_count, spec.dim);
  }
  const bool same_kind =
      element_type == spec.element_type && optimizer == spec.optimizer && init == spec.init;
  if (same_kind && init_scale == spec.init_scale && seed == spec.seed) return Status::Ok();
  return Status(Code::kInvalidArgument, "the state's vectors began, or are stepped, in another way");
}

// Calls `work` with blocks of rows, one behind the other.
Status ForEachBlock(const EmbeddingSpec& spec, const std::function<Status(RowBlock& block)>& work) {
  RowBlock block;
  for (RowId first = 0; first < spec.row_count; first += kReadRows) {
    block.ids.resize(std::min(kReadRows, spec.row_count - first));
    std::iota(block.ids.begin(), block.ids.end(), first);
    block.Resize(spec);
    QUARRY_RETURN_IF_ERROR(work(block));
  }
  return Status::Ok();
}

// Row i of a block.
std::span<float> RowOf(std::vector<float>& values, size_t i, uint32_t floats) {
  return std::span(values).subspan(i * floats, floats);
}

Status PutRows(EmbeddingTable& table, StateWriter& writer) {
  const EmbeddingSpec& spec = table.spec();
  return ForEachBlock(spec, [&](RowBlock& block) {
    QUARRY_RETURN_IF_ERROR(table.Read(block));
    for (size_t i = 0; i < block.ids.size(); i++) {
      writer.Put(block.timestamps[i]);
      writer.PutBytes(std::as_bytes(RowOf(block.values, i, spec.dim)));
      writer.PutBytes(std::as_bytes(RowOf(block.state, i, spec.state_dim())));
    }
    return Status::Ok();
  });
}

// Later updates of a row that is younger than the checkpoint would be lost.
Status TakeRows(int64_t timestamp_max, StateReader& reader, EmbeddingTable& table) {
  const EmbeddingSpec& spec = table.spec();
  return ForEachBlock(spec, [&](RowBlock& block) {
    for (size_t i = 0; i < block.ids.size(); i++) {
      block.timestamps[i] = reader.Get<int64_t>();
      reader.GetArray(RowOf(block.values, i, spec.dim));
      reader.GetArray(RowOf(block.state, i, spec.state_dim()));
    }
    QUARRY_RETURN_IF_ERROR(reader.status());
    const auto [least, most] = std::ranges::minmax(block.timestamps);
    if (least < kNeverWritten || most > timestamp_max) {
      return MakeStatus(Code::kCorruption, "the state has vectors of timestamps {} to {} at timestamp {}",
                        least, most, timestamp_max);
    }
    return table.Write(block);
  });
}

uint64_t BytesOfState(const LinkState& state, std::span<EmbeddingTable* const> tables, bool in_state) {
  uint64_t bytes = (in_state ? kVectorsBytes : kPlaceBytes) + state.task_state.size();
  for (const EmbeddingTable* table : tables) bytes += TableStateBytes(table->spec());
  return bytes;
}

Status PutState(const LinkState& state, std::span<EmbeddingTable* const> tables, bool in_state,
                StateWriter& writer) {
  writer.Put(kLinkTask);
  writer.Put(in_state ? kVectorsVersion : kPlaceVersion);
  PutPlace(state.place, writer);
  if (in_state) {
    writer.Put(state.timestamp);
    writer.Put(uint64_t{state.task_state.size()});
  }
  writer.PutBytes(state.task_state);
  for (EmbeddingTable* table : tables) {
    PutSpec(table->spec(), writer);
    QUARRY_RETURN_IF_ERROR(PutRows(*table, writer));
  }
  return Status::Ok();
}

// What stands before the rows of tables; all of a state without vectors.
Status GetBesideVectors(bool in_state, StateReader& reader, LinkState& state) {
  const auto task = reader.Get<uint32_t>();
  const auto version = reader.Get<uint32_t>();
  QUARRY_RETURN_IF_ERROR(reader.status());
  if (task != kLinkTask) {
    return MakeStatus(Code::kInvalidArgument, "the state is of task {}, not of link prediction ({})", task,
                      kLinkTask);
  }
  const uint32_t expected = in_state ? kVectorsVersion : kPlaceVersion;
  if (version != expected) {
    return MakeStatus(Code::kUnsupported, "the state has version {}; this Quarry reads version {}", version,
                      expected);
  }
  state.place = GetPlace(reader);
  if (in_state) state.timestamp = reader.Get<int64_t>();
  const uint64_t task_bytes = in_state ? reader.Get<uint64_t>() : reader.rest().size();
  const std::span<const std::byte> task_state = reader.GetBytes(task_bytes);
  state.task_state.assign(task_state.begin(), task_state.end());
  return reader.status();
}

}  // namespace

std::string LinkSettings(const LinkData& data, const LinkTrainOptions& train) {
  std::string rest = ScheduleSettings(train.schedule, train.schedule_epochs);
  if (!rest.empty()) rest.insert(0, " ");
  if (train.feature_dim > 0) rest += " --features " + train.feature_table;
  if (train.spec.regularization != Regularization::kNone) {
    rest += fmt::format(" --regularization {} --regularization-weight {}",
                        RegularizationName(train.spec.regularization), train.spec.regularization_weight);
  }
  return fmt::format(
      "--task link --decoder {} {} --dim {} --loss {} --margin {} --negatives {} --chunk {} --degree-share "
      "{} --batch-size {} --optimizer {} --lr {} --valid-share {} --test-share {} --seed {}{}",
      DecoderName(train.spec.decoder), EncoderSettings(train), train.spec.dim, LinkLossName(train.spec.loss),
      train.spec.margin, train.negatives, train.chunk_edges, train.degree_share, train.batch_edges,
      OptimizerName(train.optimizer), train.optimizer_options.learning_rate, data.held_out.valid,
      data.held_out.test, train.seed, rest);
}

std::vector<EmbeddingSpec> LinkTableSpecs(const LinkTrainOptions& train, const LinkCounts& counts) {
  std::vector<EmbeddingSpec> specs{NodeTableSpec(train, counts.nodes)};
  if (train.spec.relation_dim() > 0) specs.push_back(RelationTableSpec(train, counts.relations));
  return specs;
}

Result<std::vector<std::byte>> EncodeLinkState(const LinkState& state,
                                               std::span<EmbeddingTable* const> tables, bool in_state) {
  StateWriter writer(BytesOfState(state, tables, in_state));
  QUARRY_RETURN_IF_ERROR(PutState(state, tables, in_state, writer));
  return writer.Take();
}

Result<std::vector<std::byte>> EncodeLinkRun(const LinkState& state, std::span<EmbeddingTable* const> tables,
                                             bool in_state, const LinkEvaluation& valid,
                                             std::span<const std::byte> best) {
  const uint64_t last_bytes = BytesOfState(state, tables, in_state);
  StateWriter writer(kBestBytes + last_bytes + best.size());
  writer.Put(kLinkTask);
  writer.Put(kBestVersion);
  PutMetrics(valid.raw, writer);
  PutMetrics(valid.filtered, writer);
  writer.Put(last_bytes);
  QUARRY_RETURN_IF_ERROR(PutState(state, tables, in_state, writer));
  writer.PutBytes(best);
  return writer.Take();
}

Result<LinkRunParts> SplitLinkRun(std::span<const std::byte> bytes) {
  StateReader reader(bytes);
  const auto task = reader.Get<uint32_t>();
  const auto version = reader.Get<uint32_t>();
  QUARRY_RETURN_IF_ERROR(reader.status());
  if (task != kLinkTask || version != kBestVersion) return LinkRunParts{.last = bytes};
  LinkEvaluation valid;
  valid.raw = GetMetrics(reader);
  valid.filtered = GetMetrics(reader);
  const auto last_bytes = reader.Get<uint64_t>();
  LinkRunParts parts{.last = reader.GetBytes(last_bytes), .valid = valid};
  parts.best = reader.rest();
  QUARRY_RETURN_IF_ERROR(reader.status());
  return parts;
}

Status DecodeBesideVectors(std::span<const std::byte> bytes, LinkState& state) {
  StateReader reader(bytes);
  return GetBesideVectors(/*in_state=*/true, reader, state);
}

Status DecodeLinkState(std::span<const std::byte> bytes, LinkState& state,
                       std::span<EmbeddingTable* const> tables, bool in_state) {
  StateReader reader(bytes);
  QUARRY_RETURN_IF_ERROR(GetBesideVectors(in_state, reader, state));
  for (EmbeddingTable* table : tables) {
    QUARRY_RETURN_IF_ERROR(CheckSpec(table->spec(), reader));
    QUARRY_RETURN_IF_ERROR(TakeRows(state.timestamp, reader, *table));
  }
  return reader.Finish();
}

Status CheckPlace(const LinkState& state, uint64_t batches_before, uint64_t epoch_batches) {
  const LinkPlace& place = state.place;
  const auto timestamp = static_cast<int64_t>(batches_before + place.batches) - 1;
  if (place.epoch > 0 && place.batches <= epoch_batches && state.timestamp == timestamp) {
    return Status::Ok();
  }
  return MakeStatus(Code::kInvalidArgument,
                    "batch {} of epoch {} at timestamp {} is no place in this training", place.batches,
                    place.epoch, state.timestamp);
}

uint64_t LinkStateBytes(const LinkTrainOptions& options, const LinkCounts& counts) {
  uint64_t bytes = kVectorsBytes + LinkEncoderStateBytes(options, counts);
  const std::vector<EmbeddingSpec> specs = LinkTableSpecs(options, counts);
  for (const EmbeddingSpec& spec : std::span(specs).subspan(options.feature_dim > 0 ? 1 : 0)) {
    bytes += TableStateBytes(spec);
  }
  return options.patience == 0 ? bytes : kBestBytes + 2 * bytes;
}

uint64_t LinkCheckpointBytes(const LinkTrainOptions& options, const LinkCounts& counts) {
  const uint64_t state_bytes = LinkStateBytes(options, counts);
  // The encoder's is put together in bytes that double, and the last checkpoint's stays, as does the best's.
  const uint64_t encoder_bytes = LinkEncoderStateBytes(options, counts);
  return options.patience == 0 ? state_bytes + 3 * encoder_bytes : state_bytes / 2 * 3 + 5 * encoder_bytes;
}

uint64_t LinkStateBytes(const Manifest& manifest, const LinkTrainOptions& options) {
  return LinkStateBytes(options, CountsOf(manifest));
}

}  // namespace quarry
