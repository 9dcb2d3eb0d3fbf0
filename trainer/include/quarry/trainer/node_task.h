// NodeTask: what a model learns to tell of nodes, the targets that it learns from, and how well it does.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "quarry/base/status.h"
#include "quarry/format/road_spec.h"
#include "quarry/format/types.h"

namespace quarry {

enum class NodeTask : uint8_t {
  kClasses,     // one of several classes: cross-entropy against labels
  kRegression,  // numbers: RegressionLoss against rows of a table
  kMultiLabel,  // any of several labels: binary cross-entropy against rows of a table, of 0 and 1
};
template <>
struct EnumNames<NodeTask> {
  static constexpr std::string_view kWhat = "task";
  static constexpr std::string_view kNames[] = {"node", "regress", "multilabel"};
};

// The loss of an output's error e, in units of the target's deviation over the training nodes.
enum class RegressionLoss : uint8_t {
  kMse,    // e^2
  kHuber,  // e^2 / 2 up to an error of 1, |e| - 1/2 beyond (Huber 1964): far targets do not pull the more
  kMae,    // |e|
};
template <>
struct EnumNames<RegressionLoss> {
  static constexpr std::string_view kWhat = "loss of regression";
  static constexpr std::string_view kNames[] = {"mse", "huber", "mae"};
};

// Rows of a table that a model learns to give, gathered with each batch: they are not held. NaN: the node has no such
// target, and is not trained or judged by it.
//
// One thread.
class TargetRows {
 public:
  virtual ~TargetRows() = default;
  virtual uint32_t dim() const = 0;
  // Fills `rows` ([nodes, dim]) with those of `nodes`, in their order. kInvalidArgument for a node that has none; errors of
  // the store.
  virtual Status Read(std::span<const NodeId> nodes, std::span<float> rows) = 0;
  // Where targets are later rows of a table, reads its rows of the nodes themselves, which are what persistence predicts. False,
  // and nothing is filled, where they are not. Errors of Read.
  virtual Result<bool> ReadPresent(std::span<const NodeId> /*nodes*/, std::span<float> /*rows*/) {
    return false;
  }
  // "table \"target\", row 17", for messages about values.
  virtual std::string Place(NodeId node) const = 0;
};

// Metrics of one evaluation pass: those of its task.
struct Evaluation {
  uint64_t nodes = 0;  // nodes with a label, or a target, that were scored
  double accuracy = 0;
  // For two classes, where both occur; of several labels, the mean over those of which both values do.
  std::optional<double> auc;
  // For regression, over all targets, in the table's units.
  std::optional<double> rmse, mae;
  std::vector<double> column_rmse;  // the RMSE of each column of the targets; NaN of one that no node has
  // Where test nodes' targets are later rows, the RMSE of taking the present ones for them.
  std::optional<double> persistence_rmse;
  std::optional<double> micro_f1;  // of several labels, each told from a probability of a half on

  // What models are selected by, larger being better: the least RMSE; the AUC where there is one (classes may be skewed);
  // else micro-F1, or the accuracy.
  double selection_metric() const {
    if (rmse) return -*rmse;
    if (auc) return *auc;
    return micro_f1 ? *micro_f1 : accuracy;
  }
  // 1: no error; 0: no better than persistence. Where that was looked at.
  std::optional<double> skill() const {
    if (!rmse || !persistence_rmse || *persistence_rmse == 0) return std::nullopt;
    return 1 - *rmse / *persistence_rmse;
  }
};

}  // namespace quarry
