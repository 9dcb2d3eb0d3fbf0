// What maintenance asks for: one overload a task.
#include <cmath>

#include "wire_check.h"
#include "wire_rules.h"

namespace quarry::wire {
namespace {

Status Check(const VerifyDatabase&) { return Status(); }
Status Check(const CompactTable& compact) {
  return compact.topology ? CheckName(compact.table, "topology") : CheckTableName(compact.table);
}
Status CheckPath(std::string_view path) {
  QUARRY_RETURN_IF_ERROR(CheckPositive(path.size(), "the length of a path"));
  QUARRY_RETURN_IF_ERROR(CheckCount(path.size(), kPathBytesMax, "bytes of a path"));
  if (path.find('\0') == std::string_view::npos) return Status();
  return Fault("a path with a byte 0 in it");
}
Status Check(const CheckpointDatabase& checkpoint) { return CheckPath(checkpoint.path); }
Status Check(const BuildLayout& build) {
  QUARRY_RETURN_IF_ERROR(CheckName(build.name, "layout"));
  QUARRY_RETURN_IF_ERROR(CheckRoad(build.road));
  QUARRY_RETURN_IF_ERROR(
      CheckTableName(build.road.feature_table));  // which batches may be without, and layouts not
  QUARRY_RETURN_IF_ERROR(CheckKnown(build.road.seed_order));
  return CheckKnown(build.policy);
}
Status Check(const RebuildLayout& rebuild) { return CheckName(rebuild.name, "layout"); }
Status Check(const DropLayout& drop) { return CheckName(drop.name, "layout"); }
Status Check(const BuildPartitioning& build) {
  QUARRY_RETURN_IF_ERROR(CheckName(build.name, "partitioning"));
  QUARRY_RETURN_IF_ERROR(CheckName(build.topology, "topology"));
  QUARRY_RETURN_IF_ERROR(CheckTableName(build.table));
  QUARRY_RETURN_IF_ERROR(CheckKnown(build.method));
  if (build.chunk_share > 0 && build.chunk_share <= 1) return Status();
  return Fault("a chunk of {} of the edges: the share is above 0 and at most 1", build.chunk_share);
}
Status Check(const DropPartitioning& drop) { return CheckName(drop.name, "partitioning"); }
Status Check(const CalibrateDevice&) { return Status(); }
Status Check(const CreateEmbeddings& create) {
  QUARRY_RETURN_IF_ERROR(CheckName(create.table, "embedding table"));
  QUARRY_RETURN_IF_ERROR(CheckElementType(create.spec.element_type, "an embedding table"));
  QUARRY_RETURN_IF_ERROR(CheckKnown(create.spec.optimizer));
  QUARRY_RETURN_IF_ERROR(CheckKnown(create.spec.init));
  if (std::isfinite(create.spec.init_scale)) return Status();
  return Fault("an embedding table whose initial values have the scale {}", create.spec.init_scale);
}
Status Check(const DropEmbeddings& drop) { return CheckName(drop.table, "embedding table"); }
Status Check(const DropTraining& drop) { return CheckName(drop.name, "training run"); }
Status Check(const DropTable& drop) { return CheckTableName(drop.table); }
Status Check(const InspectDatabase&) { return Status(); }
Status Check(const ExportDatabase& what) {
  QUARRY_RETURN_IF_ERROR(CheckPath(what.path));
  QUARRY_RETURN_IF_ERROR(CheckTableName(what.table));
  return CheckKnown(what.format);
}
Status Check(const ExplainLayout& explain) {
  QUARRY_RETURN_IF_ERROR(CheckName(explain.name, "layout"));
  return CheckPositive(explain.epochs, "the number of epochs");
}
Status Check(const TraceLayout& trace) {
  QUARRY_RETURN_IF_ERROR(CheckName(trace.name, "layout"));
  return CheckCount(trace.cache_bytes.size(), kTraceSizesMax, "sizes of memory");
}
Status Check(const CreateTable& create) {
  QUARRY_RETURN_IF_ERROR(CheckTableName(create.table));
  QUARRY_RETURN_IF_ERROR(CheckElementType(create.element_type, "a table"));
  QUARRY_RETURN_IF_ERROR(CheckPositive(create.dim, "the table's dimension"));
  return CheckCount(create.dim, kDimMax, "elements of a row");
}

}  // namespace

Status CheckRoad(const RoadSpec& spec) {
  if (!spec.feature_table.empty()) QUARRY_RETURN_IF_ERROR(CheckTableName(spec.feature_table));
  QUARRY_RETURN_IF_ERROR(CheckName(spec.topology, "topology"));
  QUARRY_RETURN_IF_ERROR(CheckKnown(spec.direction));
  QUARRY_RETURN_IF_ERROR(CheckKnown(spec.sampler));
  // By type of edges, a hop's fanout is the bound of their sum. Whether there are as many as types, the graph tells.
  const bool by_type = !spec.relation_fanouts.empty();
  QUARRY_RETURN_IF_ERROR(CheckFanouts(spec.fanouts, by_type ? kTypedFanoutMax : kFanoutMax));
  return CheckPositive(spec.batch_size, "the batch size");
}

Status CheckTask(const MaintenanceTask& task) {
  return std::visit([](const auto& asked) { return Check(asked); }, task);
}

}  // namespace quarry::wire
