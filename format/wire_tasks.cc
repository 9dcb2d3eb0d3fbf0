#include "wire_tasks.h"

#include <utility>

namespace quarry::wire {

void WriteLive(const LiveSpec& spec, schema::LiveSpec::Builder out) {
  out.setFeatureTable(ToText(spec.feature_table));
  out.setTopology(ToText(spec.topology));
  out.setDirection(static_cast<uint8_t>(spec.direction));
  WriteNumbers(spec.fanouts, out.initFanouts(Count(spec.fanouts)));
  out.setBatchSize(spec.batch_size);
  out.setCacheBytes(spec.cache_bytes);
  out.setSeed(spec.seed);
  out.setReplace(spec.replace);
  out.setEdgeIds(spec.edge_ids);
}
Status ReadLive(schema::LiveSpec::Reader in, LiveSpec& out) {
  out.feature_table = ToString(in.getFeatureTable());
  out.topology = ToString(in.getTopology());
  out.direction = static_cast<Direction>(in.getDirection());
  QUARRY_RETURN_IF_ERROR(ReadNumbers(in.getFanouts(), kHopsMax, "fanouts", out.fanouts));
  out.batch_size = in.getBatchSize();
  out.cache_bytes = in.getCacheBytes();
  out.seed = in.getSeed();
  out.replace = in.getReplace();
  out.edge_ids = in.getEdgeIds();
  return Status();
}

namespace {

// Maintenance: one overload a task.
struct TaskWriter {
  schema::Maintain::Builder out;

  void operator()(const VerifyDatabase&) { out.setVerify(); }
  void operator()(const CompactTable& compact) {
    auto to = out.initCompact();
    to.setTable(ToText(compact.table));
    to.setDryRun(compact.dry_run);
  }
  void operator()(const CheckpointDatabase& checkpoint) { out.setCheckpoint(ToText(checkpoint.path)); }
  void operator()(const BuildLayout& build) {
    auto to = out.initBuildLayout();
    to.setName(ToText(build.name));
    WriteLive(build.road, to.initLive());
    to.setSeedOrder(ToText(build.road.seed_order));
    to.setPolicy(ToText(build.policy));
    to.setEpochs(build.epochs);
    to.setDiskBytes(build.disk_bytes);
    to.setHashFunctions(build.hash_functions);
    to.setThreads(build.threads);
    to.setResume(build.resume);
  }
  void operator()(const RebuildLayout& rebuild) {
    auto to = out.initRebuildLayout();
    to.setName(ToText(rebuild.name));
    to.setFull(rebuild.full);
    to.setDryRun(rebuild.dry_run);
  }
  void operator()(const DropLayout& drop) { out.setDropLayout(ToText(drop.name)); }
  void operator()(const CalibrateDevice& calibrate) { out.setCalibrate(calibrate.force); }
  void operator()(const CreateEmbeddings& create) {
    auto to = out.initCreateEmbeddings();
    to.setTable(ToText(create.table));
    to.setRowCount(create.spec.row_count);
    to.setDim(create.spec.dim);
    to.setElementType(static_cast<uint8_t>(create.spec.element_type));
    to.setOptimizer(static_cast<uint8_t>(create.spec.optimizer));
    to.setInit(static_cast<uint8_t>(create.spec.init));
    to.setInitScale(create.spec.init_scale);
    to.setSeed(create.spec.seed);
  }
  void operator()(const DropEmbeddings& drop) { out.setDropEmbeddings(ToText(drop.table)); }
  void operator()(const DropTraining& drop) { out.setDropTraining(ToText(drop.name)); }
  void operator()(const DropTable& drop) { out.setDropTable(ToText(drop.table)); }
  void operator()(const InspectDatabase&) { out.setInspect(); }
  void operator()(const ExportDatabase& what) {
    auto to = out.initExport();
    to.setPath(ToText(what.path));
    to.setFormat(ToText(what.format));
    to.setTable(ToText(what.table));
    to.setTopology(what.topology);
    to.setFeatures(what.features);
    to.setLabels(what.labels);
    to.setSplit(what.split);
    to.setEmbeddings(what.embeddings);
  }
  void operator()(const ExplainLayout& explain) {
    auto to = out.initExplainLayout();
    to.setName(ToText(explain.name));
    to.setEpochs(explain.epochs);
  }
  void operator()(const TraceLayout& trace) {
    auto to = out.initTraceLayout();
    to.setName(ToText(trace.name));
    WriteNumbers(trace.cache_bytes, to.initCacheBytes(Count(trace.cache_bytes)));
  }
};

Result<MaintenanceTask> ReadBuildLayout(schema::BuildLayout::Reader in) {
  BuildLayout build = {.name = ToString(in.getName()),
                       .epochs = in.getEpochs(),
                       .disk_bytes = in.getDiskBytes(),
                       .hash_functions = in.getHashFunctions(),
                       .threads = in.getThreads(),
                       .resume = in.getResume()};
  QUARRY_RETURN_IF_ERROR(ReadLive(in.getLive(), build.road));
  QUARRY_RETURN_IF_ERROR(FromText(in.getSeedOrder(), build.road.seed_order));
  QUARRY_RETURN_IF_ERROR(FromText(in.getPolicy(), build.policy));
  return build;
}

Result<MaintenanceTask> ReadExport(schema::ExportDatabase::Reader in) {
  ExportDatabase what = {.path = ToString(in.getPath()),
                         .table = ToString(in.getTable()),
                         .topology = in.getTopology(),
                         .features = in.getFeatures(),
                         .labels = in.getLabels(),
                         .split = in.getSplit(),
                         .embeddings = in.getEmbeddings()};
  QUARRY_RETURN_IF_ERROR(FromText(in.getFormat(), what.format));
  return what;
}

Result<MaintenanceTask> ReadTrace(schema::TraceLayout::Reader in) {
  TraceLayout trace = {.name = ToString(in.getName())};
  QUARRY_RETURN_IF_ERROR(
      ReadNumbers(in.getCacheBytes(), kTraceSizesMax, "sizes of memory", trace.cache_bytes));
  return trace;
}

CreateEmbeddings ReadCreateEmbeddings(schema::CreateEmbeddings::Reader in) {
  return {.table = ToString(in.getTable()),
          .spec = {.row_count = in.getRowCount(),
                   .dim = in.getDim(),
                   .element_type = static_cast<ElementType>(in.getElementType()),
                   .optimizer = static_cast<OptimizerKind>(in.getOptimizer()),
                   .init = static_cast<InitKind>(in.getInit()),
                   .init_scale = in.getInitScale(),
                   .seed = in.getSeed()}};
}

}  // namespace

void WriteTask(const MaintenanceTask& task, schema::Maintain::Builder out) {
  std::visit(TaskWriter{out}, task);
}

Result<MaintenanceTask> ReadTask(schema::Maintain::Reader in) {
  switch (in.which()) {
    case schema::Maintain::VERIFY:
      return VerifyDatabase{};
    case schema::Maintain::COMPACT:
      return CompactTable{ToString(in.getCompact().getTable()), in.getCompact().getDryRun()};
    case schema::Maintain::CHECKPOINT:
      return CheckpointDatabase{ToString(in.getCheckpoint())};
    case schema::Maintain::BUILD_LAYOUT:
      return ReadBuildLayout(in.getBuildLayout());
    case schema::Maintain::REBUILD_LAYOUT: {
      const auto rebuild = in.getRebuildLayout();
      return RebuildLayout{ToString(rebuild.getName()), rebuild.getFull(), rebuild.getDryRun()};
    }
    case schema::Maintain::DROP_LAYOUT:
      return DropLayout{ToString(in.getDropLayout())};
    case schema::Maintain::CALIBRATE:
      return CalibrateDevice{in.getCalibrate()};
    case schema::Maintain::CREATE_EMBEDDINGS:
      return ReadCreateEmbeddings(in.getCreateEmbeddings());
    case schema::Maintain::DROP_EMBEDDINGS:
      return DropEmbeddings{ToString(in.getDropEmbeddings())};
    case schema::Maintain::DROP_TRAINING:
      return DropTraining{ToString(in.getDropTraining())};
    case schema::Maintain::DROP_TABLE:
      return DropTable{ToString(in.getDropTable())};
    case schema::Maintain::INSPECT:
      return InspectDatabase{};
    case schema::Maintain::EXPORT:
      return ReadExport(in.getExport());
    case schema::Maintain::EXPLAIN_LAYOUT:
      return ExplainLayout{ToString(in.getExplainLayout().getName()), in.getExplainLayout().getEpochs()};
    case schema::Maintain::TRACE_LAYOUT:
      return ReadTrace(in.getTraceLayout());
  }
  return UnknownKind("maintenance", static_cast<unsigned>(in.which()));
}

}  // namespace quarry::wire
