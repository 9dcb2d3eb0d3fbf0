// The C interface: what keeps a database in order, in this process or a server's.
#include "handles.h"
#include "progress.h"
#include "quarry/format/wire_maintenance.h"

using quarry::Code;
using quarry::MakeStatus;
using quarry::ProgressFunction;
using quarry::Result;
using quarry::Status;
using quarry::client::Ends;
using quarry::client::Given;
using quarry::client::ProgressOf;
using quarry::client::TextOr;
namespace wire = quarry::wire;

namespace {

// The report's counters, where somebody asks for them.
Status Maintain(quarry_store* store, const wire::MaintenanceTask& task, const ProgressFunction& progress,
                quarry_counters** counters, wire::MaintenanceReport* whole = nullptr) {
  QUARRY_TRY(wire::MaintenanceReport report, store->store->Maintain(task, progress));
  if (counters != nullptr) *counters = new quarry_counters{wire::Counters{std::move(report.counters)}};
  if (whole != nullptr) *whole = std::move(report);
  return Status();
}

Result<wire::BuildLayout> LayoutOf(const quarry_layout_spec& given) {
  wire::BuildLayout build = {.name = TextOr(given.name, "default"),
                             .epochs = std::max(1U, given.epochs),
                             .disk_bytes = given.disk_bytes,
                             .threads = given.threads,
                             .resume = given.resume != 0};
  QUARRY_TRY(build.road, quarry::client::SpecOf(given.live));
  QUARRY_TRY(build.policy, quarry::ParseName<quarry::PolicyKind>(TextOr(given.policy, "belady")));
  QUARRY_TRY(build.road.seed_order, quarry::ParseName<quarry::SeedOrder>(TextOr(given.seed_order, "random")));
  return build;
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

int quarry_build_layout(quarry_store* store, const quarry_layout_spec* spec, quarry_counters** report) {
  return Ends([&]() -> Status {
    QUARRY_TRY(const quarry_layout_spec given, Given(spec, "quarry_layout_spec"));
    QUARRY_TRY(const wire::BuildLayout build, LayoutOf(given));
    return Maintain(store, build, ProgressOf(given.progress, given.context), report);
  });
}
int quarry_drop_layout(quarry_store* store, const char* name) {
  return Ends([&] { return Maintain(store, wire::DropLayout{TextOr(name, "default")}, {}, nullptr); });
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
  return Ends([&] {
    return Maintain(store, wire::CompactTable{TextOr(table, "feature"), dry_run != 0},
                    ProgressOf(progress, context), report);
  });
}
int quarry_checkpoint(quarry_store* store, const char* path, quarry_progress progress, void* context,
                      quarry_counters** report) {
  return Ends([&]() -> Status {
    if (path == nullptr) return MakeStatus(Code::kUsage, "no path is given");
    return Maintain(store, wire::CheckpointDatabase{path}, ProgressOf(progress, context), report);
  });
}
int quarry_verify(quarry_store* store, quarry_fault fault, quarry_progress progress, void* context,
                  quarry_counters** report) {
  return Ends([&]() -> Status {
    wire::MaintenanceReport found;
    QUARRY_RETURN_IF_ERROR(
        Maintain(store, wire::VerifyDatabase{}, ProgressOf(progress, context), report, &found));
    for (const std::string& what : found.faults) {
      if (fault != nullptr) fault(context, what.c_str());
    }
    return Status();
  });
}
int quarry_calibrate(quarry_store* store, int force, quarry_counters** report) {
  return Ends([&] { return Maintain(store, wire::CalibrateDevice{force != 0}, {}, report); });
}
