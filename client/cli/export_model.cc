#include "export_model.h"

#include <filesystem>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "cli.h"
#include "npy_file.h"
#include "opened_store.h"
#include "print_json.h"
#include "quarry/base/process.h"
#include "quarry/base/units.h"
#include "quarry/format/named_tensor.h"
#include "quarry/trainer/predict.h"
#include "remote_states.h"
#include "train_node.h"

namespace quarry::cli {

Status ExportModel(const ModelExport& what) {
  std::error_code error;
  if (std::filesystem::exists(what.dest, error)) {
    return MakeStatus(Code::kAlreadyExists, "{}: is there already; name a file that is not", what.dest);
  }
  const double start = MonotonicSeconds();
  QUARRY_TRY(const std::unique_ptr<client::Store> store,
             OpenStore(what.path, what.memory, MemoryLimitBytes()));
  QUARRY_TRY(const Manifest manifest, ManifestOf(*store, what.path));
  const std::unique_ptr<TrainingStates> states = StatesOf(*store, what.path);
  QUARRY_TRY(const TrainedShape shape, ShapeOfRun(manifest, *states, what.run));
  QUARRY_TRY(const TrainingRecord record, states->Find(what.run));
  QUARRY_TRY(const std::vector<NamedTensor> weights,
             ReadWeights(*states, what.run, shape.trained.train, shape.feature_dim));

  const std::pair<std::string_view, std::string_view> notes[] = {
      {"format", "quarry"}, {"run", what.run}, {"settings", record.settings}};
  QUARRY_TRY(NpyFile file, NpyFile::CreateOther(what.dest, ".safetensors"));
  const std::vector<std::byte> header = EncodeSafetensorsHeader(weights, notes);
  QUARRY_RETURN_IF_ERROR(file.Append(header));
  uint64_t bytes = header.size();
  for (const NamedTensor& tensor : weights) {
    QUARRY_RETURN_IF_ERROR(file.Append(std::as_bytes(std::span(tensor.values))));
    bytes += tensor.values.size() * sizeof(float);
  }
  QUARRY_RETURN_IF_ERROR(file.Finish());
  const double seconds = MonotonicSeconds() - start;
  if (what.json) {
    const nlohmann::ordered_json json = {{"path", what.dest},         {"run", what.run},
                                         {"tensors", weights.size()}, {"bytes", bytes},
                                         {"seconds", seconds},        {"peak_rss_bytes", PeakRssBytes()}};
    PrintJson(json);
    return Status::Ok();
  }
  Print("{}: {} tensors of run \"{}\", {} in {:.2f} s\n", what.dest, weights.size(), what.run,
        FormatBytes(bytes), seconds);
  return Status::Ok();
}

}  // namespace quarry::cli
