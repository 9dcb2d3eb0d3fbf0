// The C interface: making databases. In libquarry alone.
#include "handles.h"
#include "options.h"
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
using quarry::client::TakeOptions;
using quarry::client::TakesAllBut;

namespace {

Result<quarry::ImportOptions> OptionsOf(const quarry_import_options& given) {
  static_assert(TakesAllBut<quarry_import_options, quarry::ImportOptions, quarry::SourceHints>(
      {"progress", "context", "feature_type", "bfloat16"}));
  quarry::ImportOptions options;
  QUARRY_RETURN_IF_ERROR(TakeOptions(given, options));
  options.progress = ProgressOf(given.progress, given.context);
  if (given.feature_type == 0) return options;
  if (given.feature_type < QUARRY_FLOAT32 || given.feature_type > QUARRY_INT8) {
    return MakeStatus(Code::kInvalidArgument, "features of type {} cannot be stored", given.feature_type);
  }
  options.feature_type = static_cast<quarry::ElementType>(given.feature_type);
  return options;
}

Result<quarry::SourceHints> HintsOf(const quarry_import_options& given) {
  quarry::SourceHints hints = {.u2_is_bfloat16 = given.bfloat16 != 0};
  QUARRY_RETURN_IF_ERROR(TakeOptions(given, hints));
  return hints;
}

}  // namespace

int quarry_import(const char* path, const char* source, const quarry_import_options* options) {
  return Ends([&]() -> Status {
    if (path == nullptr || source == nullptr) return MakeStatus(Code::kUsage, "no path, or no source");
    QUARRY_TRY(const quarry_import_options given, Given(options, "quarry_import_options"));
    QUARRY_TRY(const quarry::ImportOptions import, OptionsOf(given));
    const std::unique_ptr<quarry::IoBackend> backend = quarry::MakeDefaultBackend();
    QUARRY_TRY(const quarry::SourceHints hints, HintsOf(given));
    QUARRY_TRY(quarry::Dataset dataset, quarry::OpenDataset(source, hints));
    return quarry::ImportDatabase(*backend, path, std::move(dataset), import);
  });
}
