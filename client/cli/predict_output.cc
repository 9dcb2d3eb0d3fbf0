#include "predict_output.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "quarry/base/log.h"
#include "quarry/import/dataset.h"

namespace quarry::cli {
namespace {

class ArrayOutput final : public PredictOutput {
 public:
  ArrayOutput(NpyFile file, bool classes) : file_(std::move(file)), classes_(classes) {}
  Status Append(std::span<const NodeId> /*nodes*/, std::span<const float> rows) override {
    if (!classes_) return file_.Append(std::as_bytes(rows));
    const std::vector<int64_t> numbers(rows.begin(), rows.end());
    return file_.Append(std::as_bytes(std::span(numbers)));
  }
  Status Finish() override { return file_.Finish(); }

 private:
  NpyFile file_;
  const bool classes_;
};

class TableOutput final : public PredictOutput {
 public:
  TableOutput(client::Store& store, std::string table, std::string run)
      : store_(store), table_(std::move(table)), run_(std::move(run)) {}
  // A part of the predictions is worth nothing, and would be kept when the store closes.
  ~TableOutput() override {
    if (finished_) return;
    if (const Status dropped = store_.DropEmbeddings(table_); !dropped.ok()) {
      LogWarn("table \"{}\" is left behind with a part of the rows: {}", table_, dropped.message());
    }
  }

  Status Append(std::span<const NodeId> nodes, std::span<const float> rows) override {
    const size_t width = rows.size() / nodes.size();
    std::vector<size_t> order(nodes.size());  // a block's ids ascend
    std::iota(order.begin(), order.end(), 0);
    std::ranges::sort(order, {}, [&](size_t i) { return nodes[i]; });
    std::vector<uint64_t> ids;
    for (const size_t i : order) ids.push_back(nodes[i]);
    QUARRY_TRY(const std::unique_ptr<client::EmbeddingRows> block, store_.ReadEmbeddings(table_, ids));
    float* to = block->arrays().values.data();
    for (const size_t i : order) to = std::ranges::copy(rows.subspan(i * width, width), to).out;
    const client::Store::Update update{.table = table_, .rows = block.get()};
    QUARRY_TRY(const wire::EmbeddingsCommitted committed, store_.CommitEmbeddings(std::span(&update, 1)));
    if (committed.stale_rows == 0) return Status::Ok();
    return MakeStatus(Code::kBusy, "table \"{}\": somebody else writes to it; drop it, and predict again",
                      table_);
  }

  Status Finish() override {
    QUARRY_TRY(const client::Training run, store_.ReadTraining(run_));
    const Status saved = store_
                             .SaveTraining({.name = run_,
                                            .settings = run.settings,
                                            .config = run.config,
                                            .state = run.state,
                                            .with_embeddings = true})
                             .status();
    finished_ = saved.ok();
    return saved;
  }

 private:
  client::Store& store_;
  const std::string table_, run_;
  bool finished_ = false;
};

}  // namespace

Result<std::vector<NodeId>> ReadNodes(const std::string& path, uint64_t node_count) {
  SourceHints hints;
  hints.train = path;  // a list of ids, or a mask
  QUARRY_TRY(const Dataset source, OpenArrays(hints));
  std::vector<NodeId> nodes;
  std::vector<bool> seen(node_count);
  std::vector<int64_t> piece(65536);
  for (;;) {
    QUARRY_TRY(const size_t count, source.train->Read(piece));
    if (count == 0) return nodes;
    for (size_t i = 0; i < count; ++i) {
      const int64_t node = piece[i];
      if (node < 0 || static_cast<uint64_t>(node) >= node_count) {
        return MakeStatus(Code::kInvalidArgument, "{}: node {} is not one of the database's {}",
                          source.train->Position(nodes.size()), node, node_count);
      }
      if (seen[static_cast<size_t>(node)]) {
        return MakeStatus(Code::kInvalidArgument, "{}: node {} occurs twice; name each node once",
                          source.train->Position(nodes.size()), node);
      }
      seen[static_cast<size_t>(node)] = true;
      nodes.push_back(static_cast<NodeId>(node));
    }
  }
}

std::unique_ptr<PredictOutput> MakeArrayOutput(NpyFile file, bool classes) {
  return std::make_unique<ArrayOutput>(std::move(file), classes);
}

std::unique_ptr<PredictOutput> MakeTableOutput(client::Store& store, std::string table, std::string run) {
  return std::make_unique<TableOutput>(store, std::move(table), std::move(run));
}

}  // namespace quarry::cli
