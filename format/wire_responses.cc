// Answers to bytes and back, as wire_requests.cc does it.
#include "quarry/format/wire_responses.h"

#include "wire_bytes.h"
#include "wire_check.h"
#include "wire_records.h"

namespace quarry::wire {
namespace {

// ---- the parts of answers

void Write(const Payload& payload, schema::Payload::Builder out) {
  if (const auto* bytes = std::get_if<0>(&payload)) return out.setInline(ToData(*bytes));
  const Lease& lease = std::get<Lease>(payload);
  auto to = out.initLease();
  to.setId(lease.id);
  WriteRange(lease.range, to.initRange());
}
Status Read(schema::Payload::Reader in, Payload& out) {
  switch (in.which()) {
    case schema::Payload::INLINE:
      out = ToBytes(in.getInline());
      return Status();
    case schema::Payload::LEASE: {
      const auto lease = in.getLease();
      out = Lease{.id = lease.getId(), .range = ReadRange(lease.getRange())};
      return Status();
    }
  }
  return UnknownKind("a payload", static_cast<unsigned>(in.which()));
}

void Write(const Region& region, schema::Region::Builder out) {
  out.setId(region.id);
  out.setBytes(region.bytes);
  out.setAccess(static_cast<uint8_t>(region.access));
}
Status Read(schema::Region::Reader in, Region& out) {
  out = {.id = in.getId(), .bytes = in.getBytes(), .access = static_cast<RegionAccess>(in.getAccess())};
  return Status();
}

void Write(const ServerLimits& limits, schema::ServerLimits::Builder out) {
  out.setMessageBytesMax(limits.message_bytes_max);
  out.setOutstandingMax(limits.outstanding_max);
  out.setIdsMax(limits.ids_max);
  out.setSessionsMax(limits.sessions_max);
  out.setBudgetBytes(limits.budget_bytes);
}
ServerLimits Read(schema::ServerLimits::Reader in) {
  return {.message_bytes_max = in.getMessageBytesMax(),
          .outstanding_max = in.getOutstandingMax(),
          .ids_max = in.getIdsMax(),
          .sessions_max = in.getSessionsMax(),
          .budget_bytes = in.getBudgetBytes()};
}

template <typename T, typename List>
void WriteEach(const std::vector<T>& records, List list) {
  WriteRecords(records, list, [](const T& from, auto to) { Write(from, to); });
}
template <typename List, typename T>
Status ReadEach(const List& list, std::string_view what, std::vector<T>& out) {
  return ReadRecords(list, what, out, [](auto from, T& to) { return Read(from, to); });
}

void WriteTexts(const std::vector<std::string>& texts, capnp::List<capnp::Text>::Builder list) {
  for (unsigned i = 0; i < list.size(); ++i) list.set(i, ToText(texts[i]));
}
Status ReadTexts(capnp::List<capnp::Text>::Reader list, uint64_t count_max, std::string_view what,
                 std::vector<std::string>& out) {
  QUARRY_RETURN_IF_ERROR(CheckCount(list.size(), count_max, what));
  out.reserve(list.size());
  for (const auto text : list) out.push_back(ToString(text));
  return Status();
}

// ---- answers to bytes: one overload each

struct ResponseWriter {
  schema::Response::Builder out;

  void operator()(const Failure& failure) {
    auto to = out.initFailure();
    to.setCode(static_cast<uint8_t>(failure.code));
    to.setMessage(ToText(failure.message));
  }
  void operator()(const Welcome& welcome) {
    auto to = out.initWelcome();
    to.setMagic(kMagic);
    to.setVersion(welcome.version);
    to.setCapabilities(welcome.capabilities);
    to.setServerId(ToData(welcome.server_id));
    Write(welcome.limits, to.initLimits());
  }
  void operator()(const SessionOpened& opened) {
    auto to = out.initSessionOpened();
    to.setSession(opened.session);
    to.setBudgetBytes(opened.budget_bytes);
    WriteEach(opened.regions, to.initRegions(Count(opened.regions)));
  }
  void operator()(const Description& description) {
    auto to = out.initDescription();
    to.setDatabaseId(ToData(description.database_id));
    to.setNodeCount(description.node_count);
    to.setClassCount(description.class_count);
    to.setPath(ToText(description.path));
    WriteEach(description.tables, to.initTables(Count(description.tables)));
    WriteEach(description.topologies, to.initTopologies(Count(description.topologies)));
    WriteEach(description.layouts, to.initLayouts(Count(description.layouts)));
    WriteEach(description.embeddings, to.initEmbeddings(Count(description.embeddings)));
    Write(description.limits, to.initLimits());
  }
  void operator()(const Rows& rows) {
    auto to = out.initRows();
    to.setRows(rows.rows);
    to.setElementType(static_cast<uint8_t>(rows.element_type));
    to.setDim(rows.dim);
    Write(rows.payload, to.initPayload());
  }
  void operator()(const Sampled& sampled) { Write(sampled.payload, out.initSampled()); }
  void operator()(const StreamOpened& opened) {
    auto to = out.initStreamOpened();
    to.setStream(opened.stream);
    to.setFeatureDim(opened.feature_dim);
    to.setSlots(opened.slots);
    to.setTimestamp(opened.timestamp);
    WriteEach(opened.regions, to.initRegions(Count(opened.regions)));
  }
  void operator()(const Batch& batch) {
    auto to = out.initBatch();
    to.setIndex(batch.index);
    Write(batch.payload, to.initPayload());
    if (batch.rows) WriteRange(*batch.rows, to.initRows());
  }
  void operator()(const EmbeddingRows& rows) {
    auto to = out.initEmbeddingRows();
    to.setRows(rows.rows);
    to.setDim(rows.dim);
    to.setStateDim(rows.state_dim);
    Write(rows.payload, to.initPayload());
  }
  void operator()(const EmbeddingsCommitted& committed) {
    auto to = out.initEmbeddingsCommitted();
    to.setTimestamp(committed.timestamp);
    to.setStaleRows(committed.stale_rows);
  }
  void operator()(const SnapshotTaken& taken) {
    auto to = out.initSnapshotTaken();
    to.setSnapshot(taken.snapshot);
    to.setTimestamp(taken.timestamp);
  }
  void operator()(const Counters& counters) {
    WriteEach(counters.counters, out.initCounters(Count(counters.counters)));
  }
  void operator()(const Training& training) {
    auto to = out.initTraining();
    to.setSettings(ToText(training.settings));
    to.setCreatedUtc(ToText(training.created_utc));
    to.setTimestamp(training.timestamp);
    Write(training.state, to.initState());
    to.setConfig(ToText(training.config));
  }
  void operator()(const Edges& edges) {
    auto to = out.initEdges();
    to.setEdges(edges.edges);
    Write(edges.payload, to.initPayload());
  }
  void operator()(const SqlOpened& opened) {
    auto to = out.initSqlOpened();
    to.setConnection(opened.connection);
    WriteEach(opened.tables, to.initTables(Count(opened.tables)));
  }
  void operator()(const Statement& statement) {
    auto to = out.initStatement();
    to.setCursor(statement.cursor);
    WriteTexts(statement.columns, to.initColumns(Count(statement.columns)));
  }
  void operator()(const SqlRows& rows) {
    auto to = out.initSqlRows();
    to.setBytes(ToData(rows.bytes));
    to.setLast(rows.last);
  }
  void operator()(const ServerStatus& status) {
    auto to = out.initServerStatus();
    WriteEach(status.counters, to.initCounters(Count(status.counters)));
    WriteEach(status.sessions, to.initSessions(Count(status.sessions)));
    WriteEach(status.streams, to.initStreams(Count(status.streams)));
    to.setSessionsLeftOut(status.sessions_left_out);
    to.setStreamsLeftOut(status.streams_left_out);
  }
  void operator()(const Progress& progress) {
    auto to = out.initProgress();
    to.setPhase(ToText(progress.phase));
    to.setDone(progress.done);
    to.setTotal(progress.total);
  }
  void operator()(const MaintenanceReport& report) {
    auto to = out.initMaintained();
    WriteEach(report.counters, to.initCounters(Count(report.counters)));
    WriteTexts(report.faults, to.initFaults(Count(report.faults)));
    WriteTexts(report.notes, to.initNotes(Count(report.notes)));
    WriteEach(report.damages, to.initDamages(Count(report.damages)));
  }
  void operator()(const ManifestBytes& manifest) { Write(manifest.payload, out.initManifest()); }
  void operator()(const Chunk& chunk) { out.setChunk(ToData(chunk.bytes)); }
  void operator()(const PassStarted& started) { out.setPassStarted(started.batches); }
  void operator()(const Written& written) { out.setWritten(written.timestamp); }
  void operator()(const Done&) { out.setDone(); }
  void operator()(const PassEnded&) { out.setPassEnded(); }
};

// ---- and back

Result<Response> ReadWelcome(schema::Welcome::Reader in) {
  if (in.getMagic() != kMagic) {
    return MakeStatus(Code::kCorruption, "a welcome that begins with {:#018x} instead of {:#018x}",
                      in.getMagic(), kMagic);
  }
  Welcome welcome = {
      .version = in.getVersion(), .capabilities = in.getCapabilities(), .limits = Read(in.getLimits())};
  QUARRY_RETURN_IF_ERROR(ReadId(in.getServerId(), "a server's id", welcome.server_id));
  return welcome;
}

Result<Response> ReadSessionOpened(schema::SessionOpened::Reader in) {
  SessionOpened opened = {.session = in.getSession(), .budget_bytes = in.getBudgetBytes()};
  QUARRY_RETURN_IF_ERROR(ReadEach(in.getRegions(), "regions", opened.regions));
  return opened;
}

Result<Response> ReadDescription(schema::Description::Reader in) {
  Description description = {.node_count = in.getNodeCount(),
                             .class_count = in.getClassCount(),
                             .limits = Read(in.getLimits()),
                             .path = ToString(in.getPath())};
  QUARRY_RETURN_IF_ERROR(ReadId(in.getDatabaseId(), "a database's id", description.database_id));
  QUARRY_RETURN_IF_ERROR(ReadEach(in.getTables(), "tables", description.tables));
  QUARRY_RETURN_IF_ERROR(ReadEach(in.getTopologies(), "topologies", description.topologies));
  QUARRY_RETURN_IF_ERROR(ReadEach(in.getLayouts(), "layouts", description.layouts));
  QUARRY_RETURN_IF_ERROR(ReadEach(in.getEmbeddings(), "embedding tables", description.embeddings));
  return description;
}

Result<Response> ReadRows(schema::Rows::Reader in) {
  Rows rows = {.rows = in.getRows(),
               .element_type = static_cast<ElementType>(in.getElementType()),
               .dim = in.getDim()};
  QUARRY_RETURN_IF_ERROR(Read(in.getPayload(), rows.payload));
  return rows;
}

Result<Response> ReadSampled(schema::Payload::Reader in) {
  Sampled sampled;
  QUARRY_RETURN_IF_ERROR(Read(in, sampled.payload));
  return sampled;
}

Result<Response> ReadStreamOpened(schema::StreamOpened::Reader in) {
  StreamOpened opened = {.stream = in.getStream(),
                         .feature_dim = in.getFeatureDim(),
                         .slots = in.getSlots(),
                         .timestamp = in.getTimestamp()};
  QUARRY_RETURN_IF_ERROR(ReadEach(in.getRegions(), "regions", opened.regions));
  return opened;
}

Result<Response> ReadBatch(schema::Batch::Reader in) {
  Batch batch = {.index = in.getIndex()};
  if (in.hasRows()) batch.rows = ReadRange(in.getRows());
  QUARRY_RETURN_IF_ERROR(Read(in.getPayload(), batch.payload));
  return batch;
}

Result<Response> ReadEmbeddingRows(schema::EmbeddingRows::Reader in) {
  EmbeddingRows rows = {.rows = in.getRows(), .dim = in.getDim(), .state_dim = in.getStateDim()};
  QUARRY_RETURN_IF_ERROR(Read(in.getPayload(), rows.payload));
  return rows;
}

Result<Response> ReadCounters(capnp::List<schema::Counter>::Reader in) {
  Counters counters;
  QUARRY_RETURN_IF_ERROR(ReadEach(in, "counters", counters.counters));
  return counters;
}

Result<Response> ReadTrainingAnswer(schema::Training::Reader in) {
  Training training = {.settings = ToString(in.getSettings()),
                       .created_utc = ToString(in.getCreatedUtc()),
                       .timestamp = in.getTimestamp(),
                       .config = ToString(in.getConfig())};
  QUARRY_RETURN_IF_ERROR(Read(in.getState(), training.state));
  return training;
}

Result<Response> ReadEdgesAnswer(schema::Edges::Reader in) {
  Edges edges = {.edges = in.getEdges()};
  QUARRY_RETURN_IF_ERROR(Read(in.getPayload(), edges.payload));
  return edges;
}

Result<Response> ReadSqlOpened(schema::SqlOpened::Reader in) {
  SqlOpened opened = {.connection = in.getConnection()};
  QUARRY_RETURN_IF_ERROR(ReadEach(in.getTables(), "tables", opened.tables));
  return opened;
}

Result<Response> ReadStatement(schema::Statement::Reader in) {
  Statement statement = {.cursor = in.getCursor()};
  QUARRY_RETURN_IF_ERROR(ReadTexts(in.getColumns(), kSqlColumnsMax, "columns", statement.columns));
  return statement;
}

Result<Response> ReadServerStatus(schema::ServerStatus::Reader in) {
  ServerStatus status = {.sessions_left_out = in.getSessionsLeftOut(),
                         .streams_left_out = in.getStreamsLeftOut()};
  QUARRY_RETURN_IF_ERROR(ReadEach(in.getCounters(), "counters", status.counters));
  QUARRY_RETURN_IF_ERROR(ReadEach(in.getSessions(), "sessions", status.sessions));
  QUARRY_RETURN_IF_ERROR(ReadEach(in.getStreams(), "streams", status.streams));
  return status;
}

Result<Response> ReadMaintained(schema::MaintenanceReport::Reader in) {
  MaintenanceReport report;
  QUARRY_RETURN_IF_ERROR(ReadEach(in.getCounters(), "counters", report.counters));
  QUARRY_RETURN_IF_ERROR(ReadTexts(in.getFaults(), kListedMax, "faults", report.faults));
  QUARRY_RETURN_IF_ERROR(ReadTexts(in.getNotes(), kListedMax, "notes", report.notes));
  QUARRY_RETURN_IF_ERROR(ReadEach(in.getDamages(), "damages", report.damages));
  return report;
}

Result<Response> ReadManifestBytes(schema::Payload::Reader in) {
  ManifestBytes manifest;
  QUARRY_RETURN_IF_ERROR(Read(in, manifest.payload));
  return manifest;
}

Result<Response> ReadResponse(schema::Response::Reader in) {
  switch (in.which()) {
    case schema::Response::FAILURE: {
      const auto failure = in.getFailure();
      return Failure{static_cast<Code>(failure.getCode()), ToString(failure.getMessage())};
    }
    case schema::Response::DONE:
      return Done{};
    case schema::Response::WELCOME:
      return ReadWelcome(in.getWelcome());
    case schema::Response::SESSION_OPENED:
      return ReadSessionOpened(in.getSessionOpened());
    case schema::Response::DESCRIPTION:
      return ReadDescription(in.getDescription());
    case schema::Response::ROWS:
      return ReadRows(in.getRows());
    case schema::Response::SAMPLED:
      return ReadSampled(in.getSampled());
    case schema::Response::STREAM_OPENED:
      return ReadStreamOpened(in.getStreamOpened());
    case schema::Response::PASS_STARTED:
      return PassStarted{in.getPassStarted()};
    case schema::Response::BATCH:
      return ReadBatch(in.getBatch());
    case schema::Response::PASS_ENDED:
      return PassEnded{};
    case schema::Response::CHUNK:
      return Chunk{ToBytes(in.getChunk())};
    case schema::Response::EMBEDDING_ROWS:
      return ReadEmbeddingRows(in.getEmbeddingRows());
    case schema::Response::EMBEDDINGS_COMMITTED: {
      const auto committed = in.getEmbeddingsCommitted();
      return EmbeddingsCommitted{committed.getTimestamp(), committed.getStaleRows()};
    }
    case schema::Response::WRITTEN:
      return Written{in.getWritten()};
    case schema::Response::SNAPSHOT_TAKEN: {
      const auto taken = in.getSnapshotTaken();
      return SnapshotTaken{taken.getSnapshot(), taken.getTimestamp()};
    }
    case schema::Response::COUNTERS:
      return ReadCounters(in.getCounters());
    case schema::Response::TRAINING:
      return ReadTrainingAnswer(in.getTraining());
    case schema::Response::EDGES:
      return ReadEdgesAnswer(in.getEdges());
    case schema::Response::SQL_OPENED:
      return ReadSqlOpened(in.getSqlOpened());
    case schema::Response::STATEMENT:
      return ReadStatement(in.getStatement());
    case schema::Response::SQL_ROWS:
      return SqlRows{ToBytes(in.getSqlRows().getBytes()), in.getSqlRows().getLast()};
    case schema::Response::SERVER_STATUS:
      return ReadServerStatus(in.getServerStatus());
    case schema::Response::PROGRESS: {
      const auto progress = in.getProgress();
      return Progress{ToString(progress.getPhase()), progress.getDone(), progress.getTotal()};
    }
    case schema::Response::MAINTAINED:
      return ReadMaintained(in.getMaintained());
    case schema::Response::MANIFEST:
      return ReadManifestBytes(in.getManifest());
  }
  return UnknownKind("an answer", static_cast<unsigned>(in.which()));
}

// What a client asked for was right; an answer that is not is the server's fault.
Status AsCorruption(const Status& status, uint64_t id) {
  if (status.code() != Code::kInvalidArgument) return status;
  return MakeStatus(Code::kCorruption, "answer {}: {}", id, status.message());
}

}  // namespace

Result<std::vector<std::byte>> EncodeResponse(uint64_t id, const Response& response, const Limits& limits) {
  QUARRY_RETURN_IF_ERROR(Check(response, limits));
  const bool welcome = std::holds_alternative<Welcome>(response);
  const uint32_t bytes_max = welcome ? limits.hello_bytes_max : limits.message_bytes_max;
  capnp::MallocMessageBuilder message(FirstSegmentWords(bytes_max));
  std::visit(ResponseWriter{message.initRoot<schema::Response>()}, response);
  return FrameOf(id, FdsOf(response), message, bytes_max, "answer");
}

Result<Response> DecodeResponse(const Frame& frame, const Limits& limits) {
  auto read = ReadFrame<schema::Response, Response>(frame, limits, "answer", ReadResponse);
  if (!read.ok()) return AsCorruption(read.status(), frame.id);
  if (Status status = Check(*read, limits); !status.ok()) return AsCorruption(status, frame.id);
  if (frame.id == 0 && !std::holds_alternative<Failure>(*read)) {
    return MakeStatus(Code::kCorruption, "an answer to no request");
  }
  if (frame.fds != FdsOf(*read)) {
    return MakeStatus(Code::kCorruption, "answer {}: {} file descriptors come with {} regions", frame.id,
                      frame.fds, FdsOf(*read));
  }
  return read;
}

}  // namespace quarry::wire
