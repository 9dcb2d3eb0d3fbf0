// The C interface: making databases, and their upkeep.
#include "handles.h"
#include "quarry/base/process.h"
#include "quarry/database.h"
#include "quarry/embedding/embedding_table.h"
#include "quarry/embedding/verify_embeddings.h"
#include "quarry/import/dataset.h"
#include "quarry/import/import.h"
#include "quarry/storage/checkpoint.h"
#include "quarry/storage/compaction.h"
#include "quarry/verify/verify.h"

using quarry::Code;
using quarry::Database;
using quarry::MakeStatus;
using quarry::Result;
using quarry::Status;
using quarry::client::Ends;
using quarry::client::Given;
using quarry::client::TextOr;
namespace wire = quarry::wire;

namespace {

Result<Database*> DatabaseOf(quarry_store* store) {
  Database* const database = store->store->database();
  if (database != nullptr) return database;
  return MakeStatus(Code::kUnsupported, "this is done to a database in the same process, not to a server's");
}

quarry::ProgressFunction ProgressOf(quarry_progress progress, void* context) {
  if (progress == nullptr) return {};
  return [progress, context](std::string_view phase, uint64_t done, uint64_t total) {
    if (progress(context, std::string(phase).c_str(), done, total) == 0) return Status();
    return Status(Code::kCancelled, "the caller's progress function ended it");
  };
}

void Report(std::vector<wire::Counter> counters, quarry_counters** report) {
  if (report != nullptr) *report = new quarry_counters{wire::Counters{std::move(counters)}};
}

double Number(uint64_t value) { return static_cast<double>(value); }

Result<quarry::ImportOptions> OptionsOf(const quarry_import_options& given) {
  quarry::ImportOptions options;
  if (given.memory_bytes != 0) options.memory_bytes = given.memory_bytes;
  options.undirected = given.undirected != 0;
  options.add_reverse = given.add_reverse != 0;
  options.both_directions = given.both_directions != 0;
  options.deduplicate = given.deduplicate != 0;
  options.allow_nan = given.allow_nan != 0;
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

Result<quarry::LayoutSpec> LayoutOf(const quarry_layout_spec& given) {
  quarry::LayoutSpec spec = {.name = TextOr(given.name, "default"),
                             .epochs = std::max(1U, given.epochs),
                             .disk_bytes = given.disk_bytes,
                             .threads = given.threads == 0 ? quarry::ProcessorCount() : given.threads};
  QUARRY_TRY(spec.road, quarry::client::SpecOf(given.live));
  QUARRY_TRY(spec.policy, quarry::ParseName<quarry::PolicyKind>(TextOr(given.policy, "belady")));
  QUARRY_TRY(spec.road.seed_order, quarry::ParseName<quarry::SeedOrder>(TextOr(given.seed_order, "random")));
  return spec;
}

// What the numbers of C stand for. That a table can be is the engine's to say.
Result<quarry::EmbeddingSpec> EmbeddingsOf(const quarry_embedding_spec& given) {
  quarry::EmbeddingSpec spec = {.row_count = given.row_count, .dim = given.dim, .seed = given.seed};
  if (given.init_scale != 0) spec.init_scale = given.init_scale;
  if (given.element_type == QUARRY_BFLOAT16) {
    spec.element_type = quarry::ElementType::kBfloat16;
  } else if (given.element_type != 0 && given.element_type != QUARRY_FLOAT32) {
    return MakeStatus(Code::kInvalidArgument,
                      "an embedding table of elements of type {}: float32 or bfloat16", given.element_type);
  }
  switch (given.optimizer) {
    case QUARRY_ADAGRAD:
      spec.optimizer = quarry::OptimizerKind::kAdagrad;
      break;
    case QUARRY_SGD:
      spec.optimizer = quarry::OptimizerKind::kSgd;
      break;
    case QUARRY_ADAM:
      spec.optimizer = quarry::OptimizerKind::kAdam;
      break;
    default:
      return MakeStatus(Code::kInvalidArgument, "optimizer {} is unknown", given.optimizer);
  }
  switch (given.init) {
    case QUARRY_INIT_UNIFORM:
      spec.init = quarry::InitKind::kUniform;
      break;
    case QUARRY_INIT_NORMAL:
      spec.init = quarry::InitKind::kNormal;
      break;
    case QUARRY_INIT_ZEROS:
      spec.init = quarry::InitKind::kZeros;
      break;
    default:
      return MakeStatus(Code::kInvalidArgument, "initial values {} are unknown", given.init);
  }
  return spec;
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

int quarry_build_layout(quarry_store* store, const quarry_layout_spec* spec, quarry_counters** report) {
  return Ends([&]() -> Status {
    QUARRY_TRY(Database* const database, DatabaseOf(store));
    QUARRY_TRY(const quarry_layout_spec given, Given(spec, "quarry_layout_spec"));
    QUARRY_TRY(const quarry::LayoutSpec layout, LayoutOf(given));
    quarry::BuildReport built;
    QUARRY_TRY(
        const quarry::LayoutRecord record,
        database->BuildLayout(layout, given.resume != 0, ProgressOf(given.progress, given.context), &built));
    Report({{"batches", Number(record.batch_count)},
            {"disk_bytes", Number(record.total_bytes())},
            {"cache_rows", Number(record.cache_rows)},
            {"bytes_read", Number(record.row_bytes_read)},
            {"bytes_useful", Number(record.useful_bytes)},
            {"predicted_seconds", record.predicted_seconds},
            {"sample_seconds", built.sample_seconds},
            {"plan_seconds", built.plan_seconds},
            {"pack_seconds", built.pack_seconds}},
           report);
    return Status();
  });
}
int quarry_drop_layout(quarry_store* store, const char* name) {
  return Ends([&]() -> Status {
    QUARRY_TRY(Database* const database, DatabaseOf(store));
    return quarry::DropLayout(database->store(), TextOr(name, "default"));
  });
}

int quarry_create_embeddings(quarry_store* store, const char* table, const quarry_embedding_spec* spec) {
  return Ends([&]() -> Status {
    QUARRY_TRY(const quarry_embedding_spec given, Given(spec, "quarry_embedding_spec"));
    QUARRY_TRY(const quarry::EmbeddingSpec made, EmbeddingsOf(given));
    return store->store->CreateEmbeddings(TextOr(table, ""), made);
  });
}
int quarry_drop_embeddings(quarry_store* store, const char* table) {
  return Ends([&] { return store->store->DropEmbeddings(TextOr(table, "")); });
}

int quarry_compact(quarry_store* store, const char* table, int dry_run, quarry_progress progress,
                   void* context, quarry_counters** report) {
  return Ends([&]() -> Status {
    QUARRY_TRY(Database* const database, DatabaseOf(store));
    QUARRY_TRY(const quarry::CompactionReport done,
               quarry::CompactTable(database->store(), database->budget(), TextOr(table, "feature"),
                                    dry_run != 0, ProgressOf(progress, context)));
    Report({{"rows_changed", Number(done.rows_changed)},
            {"rows", Number(done.row_count)},
            {"bytes", done.rows_changed == 0 ? 0 : Number(done.bytes)},
            {"generation", Number(done.generation)},
            {"seconds", done.seconds}},
           report);
    return Status();
  });
}
int quarry_checkpoint(quarry_store* store, const char* path, quarry_progress progress, void* context,
                      quarry_counters** report) {
  return Ends([&]() -> Status {
    QUARRY_TRY(Database* const database, DatabaseOf(store));
    if (path == nullptr) return MakeStatus(Code::kUsage, "no path is given");
    QUARRY_TRY(
        const quarry::CheckpointReport done,
        quarry::CheckpointStore(database->store(), database->budget(), path, ProgressOf(progress, context)));
    Report({{"timestamp", Number(done.timestamp)},
            {"files_linked", Number(done.files_linked)},
            {"files_reflinked", Number(done.files_reflinked)},
            {"files_copied", Number(done.files_copied)},
            {"bytes", Number(done.bytes)},
            {"bytes_copied", Number(done.bytes_copied)},
            {"seconds", done.seconds}},
           report);
    return Status();
  });
}
int quarry_verify(quarry_store* store, quarry_fault fault, quarry_progress progress, void* context,
                  quarry_counters** report) {
  return Ends([&]() -> Status {
    QUARRY_TRY(Database* const database, DatabaseOf(store));
    const quarry::ProgressFunction shown = ProgressOf(progress, context);
    QUARRY_TRY(quarry::VerifyReport found, quarry::VerifyStore(database->store(), shown));
    QUARRY_RETURN_IF_ERROR(quarry::VerifyEmbeddings(database->store(), shown, found));
    for (const Status& what : found.faults) {
      if (fault != nullptr) fault(context, std::string(what.message()).c_str());
    }
    Report({{"faults", Number(found.faults.size())},
            {"files", Number(found.files)},
            {"bytes", Number(found.bytes)}},
           report);
    return Status();
  });
}
int quarry_calibrate(quarry_store* store, int force, quarry_counters** report) {
  return Ends([&]() -> Status {
    QUARRY_TRY(Database* const database, DatabaseOf(store));
    QUARRY_TRY(const quarry::DeviceRecord device, database->Calibrate(force != 0));
    Report({{"random_reads_per_second", device.random_reads_per_second},
            {"sequential_bytes_per_second", device.sequential_bytes_per_second},
            {"write_bytes_per_second", device.write_bytes_per_second},
            {"gather_bytes_per_second", device.gather_bytes_per_second}},
           report);
    return Status();
  });
}
