// The C interface: making databases. In libquarry alone.
#include "handles.h"
#include "progress.h"
#include "quarry/import/dataset.h"
#include "quarry/import/import.h"

using quarry::Code;
using quarry::MakeStatus;
using quarry::Result;
using quarry::Status;
using quarry::client::Ends;
using quarry::client::Given;
using quarry::client::ProgressOf;
using quarry::client::TextOr;

namespace {

Result<quarry::ImportOptions> OptionsOf(const quarry_import_options& given) {
  quarry::ImportOptions options;
  if (given.memory_bytes != 0) options.memory_bytes = given.memory_bytes;
  options.undirected = given.undirected != 0;
  options.add_reverse = given.add_reverse != 0;
  options.both_directions = given.both_directions != 0;
  options.deduplicate = given.deduplicate != 0;
  options.allow_nan = given.allow_nan != 0;
  options.relabel = given.relabel != 0;
  options.progress = ProgressOf(given.progress, given.context);
  if (given.feature_type == 0) return options;
  if (given.feature_type < QUARRY_FLOAT32 || given.feature_type > QUARRY_INT8) {
    return MakeStatus(Code::kInvalidArgument, "features of type {} cannot be stored", given.feature_type);
  }
  options.feature_type = static_cast<quarry::ElementType>(given.feature_type);
  return options;
}

quarry::SourceHints HintsOf(const quarry_import_options& given) {
  return {.node_count = given.node_count,
          .feature_dim = given.feature_dim,
          .u2_is_bfloat16 = given.bfloat16 != 0,
          .raw_type = TextOr(given.raw_type, ""),
          .edges = TextOr(given.edges, ""),
          .features = TextOr(given.features, ""),
          .labels = TextOr(given.labels, ""),
          .train = TextOr(given.train, ""),
          .valid = TextOr(given.valid, ""),
          .test = TextOr(given.test, "")};
}

}  // namespace

int quarry_import(const char* path, const char* source, const quarry_import_options* options) {
  return Ends([&]() -> Status {
    if (path == nullptr || source == nullptr) return MakeStatus(Code::kUsage, "no path, or no source");
    QUARRY_TRY(const quarry_import_options given, Given(options, "quarry_import_options"));
    QUARRY_TRY(const quarry::ImportOptions import, OptionsOf(given));
    const std::unique_ptr<quarry::IoBackend> backend = quarry::MakeDefaultBackend();
    QUARRY_TRY(quarry::Dataset dataset, quarry::OpenDataset(source, HintsOf(given)));
    return quarry::ImportDatabase(*backend, path, std::move(dataset), import);
  });
}
