#include "wire_records.h"

namespace quarry::wire {

void Write(const TableInfo& table, schema::TableInfo::Builder out) {
  out.setName(ToText(table.name));
  out.setElementType(static_cast<uint8_t>(table.element_type));
  out.setRowCount(table.row_count);
  out.setDim(table.dim);
  out.setGeneration(table.generation);
}
Status Read(schema::TableInfo::Reader in, TableInfo& out) {
  out = {.name = ToString(in.getName()),
         .element_type = static_cast<ElementType>(in.getElementType()),
         .row_count = in.getRowCount(),
         .dim = in.getDim(),
         .generation = in.getGeneration()};
  return Status();
}

void Write(const TopologyInfo& topology, schema::TopologyInfo::Builder out) {
  out.setName(ToText(topology.name));
  out.setNodeCount(topology.node_count);
  out.setEdgeCount(topology.edge_count);
  out.setRelationCount(topology.relation_count);
  out.setHasCsr(topology.has_csr);
  out.setUndirected(topology.undirected);
  out.setDeduplicated(topology.deduplicated);
  out.setWeighted(topology.weighted);
}
Status Read(schema::TopologyInfo::Reader in, TopologyInfo& out) {
  out = {.name = ToString(in.getName()),
         .node_count = in.getNodeCount(),
         .edge_count = in.getEdgeCount(),
         .relation_count = in.getRelationCount(),
         .has_csr = in.getHasCsr(),
         .undirected = in.getUndirected(),
         .deduplicated = in.getDeduplicated(),
         .weighted = in.getWeighted()};
  return Status();
}

void Write(const LayoutInfo& layout, schema::LayoutInfo::Builder out) {
  out.setName(ToText(layout.name));
  out.setTable(ToText(layout.spec.feature_table));
  out.setTopology(ToText(layout.spec.topology));
  out.setSeed(layout.spec.seed);
  out.setReplace(layout.spec.replace);
  out.setBatchSize(layout.spec.batch_size);
  WriteNumbers(layout.spec.fanouts, out.initFanouts(Count(layout.spec.fanouts)));
  out.setDirection(static_cast<uint8_t>(layout.spec.direction));
  out.setPolicy(ToText(layout.policy));
  out.setSeedOrder(ToText(layout.spec.seed_order));
  out.setEpochs(layout.epochs);
  out.setBatchCount(layout.batch_count);
  out.setCacheRows(layout.cache_rows);
  out.setFileBytes(layout.file_bytes);
  out.setServable(layout.servable);
  out.setBatchesPerSegment(layout.batches_per_segment);
}
Status Read(schema::LayoutInfo::Reader in, LayoutInfo& out) {
  out = {.name = ToString(in.getName()),
         .spec = {.feature_table = ToString(in.getTable()),
                  .topology = ToString(in.getTopology()),
                  .direction = static_cast<Direction>(in.getDirection()),
                  .batch_size = in.getBatchSize(),
                  .seed = in.getSeed(),
                  .replace = in.getReplace()},
         .epochs = in.getEpochs(),
         .batch_count = in.getBatchCount(),
         .cache_rows = in.getCacheRows(),
         .file_bytes = in.getFileBytes(),
         .servable = in.getServable(),
         .batches_per_segment = in.getBatchesPerSegment()};
  QUARRY_RETURN_IF_ERROR(FromText(in.getPolicy(), out.policy));
  QUARRY_RETURN_IF_ERROR(FromText(in.getSeedOrder(), out.spec.seed_order));
  return ReadNumbers(in.getFanouts(), kHopsMax, "fanouts", out.spec.fanouts);
}

void Write(const EmbeddingInfo& embedding, schema::EmbeddingInfo::Builder out) {
  out.setName(ToText(embedding.name));
  out.setRowCount(embedding.row_count);
  out.setDim(embedding.dim);
  out.setStateDim(embedding.state_dim);
  out.setElementType(static_cast<uint8_t>(embedding.element_type));
  out.setOptimizer(embedding.optimizer);
}
Status Read(schema::EmbeddingInfo::Reader in, EmbeddingInfo& out) {
  out = {.name = ToString(in.getName()),
         .row_count = in.getRowCount(),
         .dim = in.getDim(),
         .state_dim = in.getStateDim(),
         .element_type = static_cast<ElementType>(in.getElementType()),
         .optimizer = in.getOptimizer()};
  return Status();
}

void Write(const Counter& counter, schema::Counter::Builder out) {
  out.setName(ToText(counter.name));
  out.setValue(counter.value);
}
Status Read(schema::Counter::Reader in, Counter& out) {
  out = {.name = ToString(in.getName()), .value = in.getValue()};
  return Status();
}

void Write(const SessionStatus& session, schema::SessionStatus::Builder out) {
  out.setId(session.id);
  out.setPid(session.pid);
  out.setUid(session.uid);
  out.setSeconds(session.seconds);
  out.setBudgetBytes(session.budget_bytes);
  out.setUsedBytes(session.used_bytes);
  out.setOutstanding(session.outstanding);
  out.setLeases(session.leases);
  out.setBytesSent(session.bytes_sent);
  out.setSharedBytes(session.shared_bytes);
  out.setRequests(session.requests);
}
Status Read(schema::SessionStatus::Reader in, SessionStatus& out) {
  out = {.id = in.getId(),
         .pid = in.getPid(),
         .uid = in.getUid(),
         .seconds = in.getSeconds(),
         .budget_bytes = in.getBudgetBytes(),
         .used_bytes = in.getUsedBytes(),
         .outstanding = in.getOutstanding(),
         .leases = in.getLeases(),
         .bytes_sent = in.getBytesSent(),
         .shared_bytes = in.getSharedBytes(),
         .requests = in.getRequests()};
  return Status();
}

void Write(const StreamStatus& stream, schema::StreamStatus::Builder out) {
  out.setId(stream.id);
  out.setSession(stream.session);
  out.setRoad(ToText(stream.road));
  out.setGroup(ToText(stream.group));
  out.setBatches(stream.batches);
  out.setBytes(stream.bytes);
  out.setHeld(stream.held);
  out.setWaiting(stream.waiting);
  out.setSlots(stream.slots);
  out.setReadBytes(stream.read_bytes);
  out.setCacheLookups(stream.cache_lookups);
  out.setCacheHits(stream.cache_hits);
  out.setConsumerWaitSeconds(stream.consumer_wait_seconds);
}
Status Read(schema::StreamStatus::Reader in, StreamStatus& out) {
  out = {.id = in.getId(),
         .session = in.getSession(),
         .road = ToString(in.getRoad()),
         .group = ToString(in.getGroup()),
         .batches = in.getBatches(),
         .bytes = in.getBytes(),
         .held = in.getHeld(),
         .waiting = in.getWaiting(),
         .slots = in.getSlots(),
         .read_bytes = in.getReadBytes(),
         .cache_lookups = in.getCacheLookups(),
         .cache_hits = in.getCacheHits(),
         .consumer_wait_seconds = in.getConsumerWaitSeconds()};
  return Status();
}

void Write(const Damage& damage, schema::Damage::Builder out) {
  out.setKind(damage.kind);
  out.setName(ToText(damage.name));
  out.setFirstRow(damage.first_row);
  out.setRowCount(damage.row_count);
}
Status Read(schema::Damage::Reader in, Damage& out) {
  out = {.kind = in.getKind(),
         .name = ToString(in.getName()),
         .first_row = in.getFirstRow(),
         .row_count = in.getRowCount()};
  return Status();
}

void Write(const SqlColumn& column, schema::SqlColumn::Builder out) {
  out.setName(ToText(column.name));
  out.setType(ToText(column.type));
  out.setHidden(column.hidden);
}
Status Read(schema::SqlColumn::Reader in, SqlColumn& out) {
  out = {.name = ToString(in.getName()), .type = ToString(in.getType()), .hidden = in.getHidden()};
  return Status();
}

void Write(const SqlTable& table, schema::SqlTable::Builder out) {
  out.setName(ToText(table.name));
  WriteRecords(table.columns, out.initColumns(Count(table.columns)),
               [](const SqlColumn& from, auto to) { Write(from, to); });
}
Status Read(schema::SqlTable::Reader in, SqlTable& out) {
  out.name = ToString(in.getName());
  return ReadRecords(in.getColumns(), "columns of a table", out.columns,
                     [](auto from, SqlColumn& to) { return Read(from, to); });
}

}  // namespace quarry::wire
