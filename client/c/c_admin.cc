// The C interface: what keeps a database in order, in this process or a server's.
#include "handles.h"
#include "options.h"
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
using quarry::client::TakeOptions;
using quarry::client::TakesAllBut;
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
  static_assert(
      TakesAllBut<quarry_layout_spec, wire::BuildLayout, quarry::RoadSpec>({"live", "progress", "context"}));
  wire::BuildLayout build;
  QUARRY_TRY(build.road, quarry::client::SpecOf(given.live));
  QUARRY_RETURN_IF_ERROR(TakeOptions(given, build));
  QUARRY_RETURN_IF_ERROR(TakeOptions(given, build.road));
  return build;
}

// That a table can be is the engine's to say.
Result<quarry::EmbeddingSpec> EmbeddingsOf(const quarry_embedding_spec& given) {
  static_assert(TakesAllBut<quarry_embedding_spec, quarry::EmbeddingSpec>({"element_type"}));
  quarry::EmbeddingSpec spec;
  QUARRY_RETURN_IF_ERROR(TakeOptions(given, spec));
  if (given.element_type == QUARRY_BFLOAT16) {
    spec.element_type = quarry::ElementType::kBfloat16;
  } else if (given.element_type != 0 && given.element_type != QUARRY_FLOAT32) {
    return MakeStatus(Code::kInvalidArgument,
                      "an embedding table of elements of type {}: float32 or bfloat16", given.element_type);
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

int quarry_build_partitioning(quarry_store* store, const quarry_partitioning_options* options,
                              quarry_counters** report) {
  return Ends([&]() -> Status {
    QUARRY_TRY(const quarry_partitioning_options given, Given(options, "quarry_partitioning_options"));
    static_assert(TakesAllBut<quarry_partitioning_options, wire::BuildPartitioning>(
        {"progress", "context", "edges_only"}));
    wire::BuildPartitioning build;
    QUARRY_RETURN_IF_ERROR(TakeOptions(given, build));
    build.rows = given.edges_only == 0;
    return Maintain(store, build, ProgressOf(given.progress, given.context), report);
  });
}
int quarry_drop_partitioning(quarry_store* store, const char* name) {
  return Ends([&] { return Maintain(store, wire::DropPartitioning{TextOr(name, "default")}, {}, nullptr); });
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
int quarry_compact_topology(quarry_store* store, const char* topology, int dry_run, quarry_progress progress,
                            void* context, quarry_counters** report) {
  return Ends([&] {
    return Maintain(store, wire::CompactTable{TextOr(topology, "graph"), dry_run != 0, /*topology=*/true},
                    ProgressOf(progress, context), report);
  });
}
int quarry_create_table(quarry_store* store, const char* table, int element_type, uint64_t dim) {
  return Ends([&] {
    return store->store->CreateTable(TextOr(table, ""), static_cast<quarry::ElementType>(element_type), dim);
  });
}
int quarry_drop_table(quarry_store* store, const char* table) {
  return Ends([&] { return store->store->Maintain(wire::DropTable{TextOr(table, "")}).status(); });
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
