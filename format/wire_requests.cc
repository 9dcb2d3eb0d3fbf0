// Requests to bytes and back. A request that this file writes, it reads back equal; what else arrives is held
// to the same rules (wire_check.h).
#include "quarry/format/wire_requests.h"

#include "wire_bytes.h"
#include "wire_check.h"
#include "wire_tasks.h"

namespace quarry::wire {
namespace {

// ---- the parts of requests

void Write(const Bulk& bulk, schema::Bulk::Builder out) {
  if (const auto* bytes = std::get_if<0>(&bulk)) return out.setInline(ToData(*bytes));
  WriteRange(std::get<Range>(bulk), out.initRange());
}
Status Read(schema::Bulk::Reader in, Bulk& out) {
  switch (in.which()) {
    case schema::Bulk::INLINE:
      out = ToBytes(in.getInline());
      return Status();
    case schema::Bulk::RANGE:
      out = ReadRange(in.getRange());
      return Status();
  }
  return UnknownKind("bulk data", static_cast<unsigned>(in.which()));
}

template <typename Id, typename Builder>
void WriteIds(const std::variant<std::vector<Id>, Range>& ids, Builder out) {
  if (const auto* list = std::get_if<0>(&ids)) return WriteNumbers(*list, out.initList(Count(*list)));
  WriteRange(std::get<Range>(ids), out.initRange());
}
template <typename Reader, typename Id>
Status ReadIds(Reader in, uint64_t count_max, std::variant<std::vector<Id>, Range>& out) {
  if (in.isList()) return ReadNumbers(in.getList(), count_max, "ids", out.template emplace<0>());
  if (!in.isRange()) return UnknownKind("ids", static_cast<unsigned>(in.which()));
  out = ReadRange(in.getRange());
  return Status();
}

void Write(const PlannedSpec& spec, schema::PlannedSpec::Builder out) {
  out.setLayout(ToText(spec.layout));
  if (spec.live) WriteLive(*spec.live, out.initLive());
}
Status Read(schema::PlannedSpec::Reader in, PlannedSpec& out) {
  out.layout = ToString(in.getLayout());
  return in.hasLive() ? ReadLive(in.getLive(), out.live.emplace()) : Status();
}

void Write(const SuperbatchSpec& spec, schema::SuperbatchSpec::Builder out) {
  WriteLive(spec.live, out.initLive());
  out.setPolicy(ToText(spec.policy));
  out.setSeedOrder(ToText(spec.live.seed_order));
  out.setPacking(static_cast<uint8_t>(spec.packing));
  out.setDiskBytes(spec.disk_bytes);
}
Status Read(schema::SuperbatchSpec::Reader in, SuperbatchSpec& out) {
  QUARRY_RETURN_IF_ERROR(FromText(in.getPolicy(), out.policy));
  QUARRY_RETURN_IF_ERROR(FromText(in.getSeedOrder(), out.live.seed_order));
  out.packing = static_cast<Packing>(in.getPacking());
  out.disk_bytes = in.getDiskBytes();
  return ReadLive(in.getLive(), out.live);
}

void WriteRoad(const OpenStream& open, schema::OpenStream::Road::Builder out) {
  if (const auto* live = std::get_if<LiveSpec>(&open.road)) return WriteLive(*live, out.initLive());
  if (const auto* planned = std::get_if<PlannedSpec>(&open.road)) return Write(*planned, out.initPlanned());
  Write(std::get<SuperbatchSpec>(open.road), out.initSuperbatch());
}
Status ReadRoad(schema::OpenStream::Road::Reader in, OpenStream& out) {
  switch (in.which()) {
    case schema::OpenStream::Road::LIVE:
      return ReadLive(in.getLive(), out.road.emplace<LiveSpec>());
    case schema::OpenStream::Road::PLANNED:
      return Read(in.getPlanned(), out.road.emplace<PlannedSpec>());
    case schema::OpenStream::Road::SUPERBATCH:
      return Read(in.getSuperbatch(), out.road.emplace<SuperbatchSpec>());
  }
  return UnknownKind("a road", static_cast<unsigned>(in.which()));
}

void Write(const EmbeddingUpdate& update, schema::EmbeddingUpdate::Builder out) {
  out.setTable(ToText(update.table));
  out.setRows(update.rows);
  out.setDim(update.dim);
  out.setStateDim(update.state_dim);
  Write(update.block, out.initBlock());
}
Status Read(schema::EmbeddingUpdate::Reader in, EmbeddingUpdate& out) {
  out.table = ToString(in.getTable());
  out.rows = in.getRows();
  out.dim = in.getDim();
  out.state_dim = in.getStateDim();
  return Read(in.getBlock(), out.block);
}

void Write(const PutRows& rows, schema::PutRows::Builder out) {
  out.setTable(ToText(rows.table));
  out.setRows(rows.rows);
  out.setRowBytes(rows.row_bytes);
  Write(rows.block, out.initBlock());
}
Status Read(schema::PutRows::Reader in, PutRows& out) {
  out.table = ToString(in.getTable());
  out.rows = in.getRows();
  out.row_bytes = in.getRowBytes();
  return Read(in.getBlock(), out.block);
}

// ---- requests to bytes: one overload each

struct RequestWriter {
  schema::Request::Builder out;

  void operator()(const Hello& hello) {
    auto to = out.initHello();
    to.setMagic(kMagic);
    to.setVersionMin(hello.version_min);
    to.setVersionMax(hello.version_max);
    to.setCapabilities(hello.capabilities);
    to.setMessageBytesMax(hello.message_bytes_max);
  }
  void operator()(const OpenSession& session) {
    auto to = out.initOpenSession();
    to.setClientId(ToData(session.client_id));
    to.setBudgetBytes(session.budget_bytes);
    to.setBudgetBytesMin(session.budget_bytes_min);
    to.setWaitMs(session.wait_ms);
  }
  void operator()(const Lookup& lookup) {
    auto to = out.initLookup();
    to.setTable(ToText(lookup.table));
    WriteIds(lookup.ids, to.initIds());
    to.setSnapshot(lookup.snapshot);
  }
  void operator()(const Sample& sample) {
    auto to = out.initSample();
    to.setTopology(ToText(sample.topology));
    WriteNumbers(sample.seeds, to.initSeeds(Count(sample.seeds)));
    WriteNumbers(sample.fanouts, to.initFanouts(Count(sample.fanouts)));
    to.setDirection(static_cast<uint8_t>(sample.direction));
    to.setStreamSeed(sample.stream_seed);
    to.setEdgeIds(sample.edge_ids);
  }
  void operator()(const OpenStream& open) {
    auto to = out.initOpenStream();
    WriteRoad(open, to.initRoad());
    to.setMode(static_cast<uint8_t>(open.mode));
    to.setGroup(ToText(open.group));
    to.setMembers(open.members);
    to.setSnapshot(open.snapshot);
  }
  void operator()(const StartPass& pass) {
    auto to = out.initStartPass();
    to.setStream(pass.stream);
    if (const auto* ids = std::get_if<NodeIds>(&pass.seeds)) {
      WriteIds(*ids, to.getSeeds().initIds());
    } else {
      to.getSeeds().setSplit(static_cast<uint8_t>(std::get<Split>(pass.seeds)));
    }
    to.setShuffle(pass.shuffle);
    to.setPass(pass.pass);
    to.setOrdered(pass.ordered);
  }
  void operator()(const ReleaseLeases& release) {
    WriteNumbers(release.leases, out.initReleaseLeases(Count(release.leases)));
  }
  void operator()(const ReadLease& read) {
    auto to = out.initReadLease();
    to.setLease(read.lease);
    to.setOffset(read.offset);
    to.setBytes(read.bytes);
  }
  void operator()(const ReadEmbeddings& read) {
    auto to = out.initReadEmbeddings();
    to.setTable(ToText(read.table));
    WriteIds(read.ids, to.initIds());
  }
  void operator()(const CommitEmbeddings& commit) {
    auto to = out.initCommitEmbeddings();
    to.setNumber(commit.number);
    WriteRecords(commit.updates, to.initUpdates(Count(commit.updates)),
                 [](const EmbeddingUpdate& from, auto update) { Write(from, update); });
  }
  void operator()(const Put& put) {
    auto to = out.initPut();
    to.setNumber(put.number);
    to.setUnsynced(!put.sync);
    to.setPiece(put.piece);
    to.setLast(put.last);
    WriteRecords(put.tables, to.initTables(Count(put.tables)),
                 [](const PutRows& from, auto rows) { Write(from, rows); });
  }
  void operator()(const SaveTraining& save) {
    auto to = out.initSaveTraining();
    to.setName(ToText(save.name));
    to.setSettings(ToText(save.settings));
    to.setStateBytes(save.state_bytes);
    to.setOffset(save.offset);
    Write(save.piece, to.initPiece());
    to.setWithEmbeddings(save.with_embeddings);
    to.setConfig(ToText(save.config));
  }
  void operator()(const ReadTraining& read) {
    auto to = out.initReadTraining();
    to.setName(ToText(read.name));
    to.setWithoutState(!read.with_state);
  }
  void operator()(const ReadEdges& read) {
    auto to = out.initReadEdges();
    to.setTopology(ToText(read.topology));
    to.setFirst(read.first);
    to.setCount(read.count);
  }
  void operator()(const OpenSql& open) {
    auto to = out.initOpenSql();
    to.setWrite(open.write);
    to.setTimeoutSeconds(open.timeout_seconds);
  }
  void operator()(const Query& query) {
    auto to = out.initQuery();
    to.setConnection(query.connection);
    to.setScript(query.script);
    Write(query.text, to.initText());
    to.setParameters(query.parameters);
    Write(query.values, to.initValues());
  }
  void operator()(const Fetch& fetch) {
    auto to = out.initFetch();
    to.setCursor(fetch.cursor);
    to.setNext(fetch.next);
  }
  void operator()(const CloseSql& close) { out.setCloseSql(close.connection); }
  void operator()(const CloseQuery& close) { out.setCloseQuery(close.cursor); }
  void operator()(const NextBatch& next) { out.setNextBatch(next.stream); }
  void operator()(const CloseStream& close) { out.setCloseStream(close.stream); }
  void operator()(const ReleaseSnapshot& release) { out.setReleaseSnapshot(release.snapshot); }
  void operator()(const Stats& stats) { out.setStats(stats.stream); }
  void operator()(const Cancel& cancel) { out.setCancel(cancel.request); }
  void operator()(const Describe&) { out.setDescribe(); }
  void operator()(const TakeSnapshot&) { out.setTakeSnapshot(); }
  void operator()(const ForgetPut& forget) { out.setForgetPut(forget.number); }
  void operator()(const Ping&) { out.setPing(); }
  void operator()(const GetStatus&) { out.setGetStatus(); }
  void operator()(const Maintain& maintain) { WriteTask(maintain.task, out.initMaintain()); }
  void operator()(const ReadManifest&) { out.setReadManifest(); }
};

// ---- and back

Result<Request> ReadHello(schema::Hello::Reader in) {
  if (in.getMagic() != kMagic) {
    return MakeStatus(Code::kCorruption, "a hello that begins with {:#018x} instead of {:#018x}",
                      in.getMagic(), kMagic);
  }
  return Hello{.version_min = in.getVersionMin(),
               .version_max = in.getVersionMax(),
               .capabilities = in.getCapabilities(),
               .message_bytes_max = in.getMessageBytesMax()};
}

Result<Request> ReadOpenSession(schema::OpenSession::Reader in) {
  OpenSession session = {.budget_bytes = in.getBudgetBytes(),
                         .budget_bytes_min = in.getBudgetBytesMin(),
                         .wait_ms = in.getWaitMs()};
  QUARRY_RETURN_IF_ERROR(ReadId(in.getClientId(), "a client's id", session.client_id));
  return session;
}

Result<Request> ReadLookup(schema::Lookup::Reader in, const Limits& limits) {
  Lookup lookup = {.table = ToString(in.getTable()), .snapshot = in.getSnapshot()};
  QUARRY_RETURN_IF_ERROR(ReadIds(in.getIds(), limits.ids_max, lookup.ids));
  return lookup;
}

Result<Request> ReadSample(schema::Sample::Reader in, const Limits& limits) {
  Sample sample = {.topology = ToString(in.getTopology()),
                   .direction = static_cast<Direction>(in.getDirection()),
                   .stream_seed = in.getStreamSeed(),
                   .edge_ids = in.getEdgeIds()};
  QUARRY_RETURN_IF_ERROR(ReadNumbers(in.getSeeds(), limits.ids_max, "seeds", sample.seeds));
  QUARRY_RETURN_IF_ERROR(ReadNumbers(in.getFanouts(), kHopsMax, "fanouts", sample.fanouts));
  return sample;
}

Result<Request> ReadOpenStream(schema::OpenStream::Reader in) {
  OpenStream open = {.mode = static_cast<StreamMode>(in.getMode()),
                     .group = ToString(in.getGroup()),
                     .members = in.getMembers(),
                     .snapshot = in.getSnapshot()};
  QUARRY_RETURN_IF_ERROR(ReadRoad(in.getRoad(), open));
  return open;
}

Result<Request> ReadStartPass(schema::StartPass::Reader in) {
  StartPass pass = {
      .stream = in.getStream(), .shuffle = in.getShuffle(), .pass = in.getPass(), .ordered = in.getOrdered()};
  const auto seeds = in.getSeeds();
  switch (seeds.which()) {
    case schema::StartPass::Seeds::SPLIT:
      pass.seeds = static_cast<Split>(seeds.getSplit());
      return pass;
    case schema::StartPass::Seeds::IDS:
      QUARRY_RETURN_IF_ERROR(ReadIds(seeds.getIds(), kNodeCountMax, pass.seeds.emplace<NodeIds>()));
      return pass;
  }
  return UnknownKind("seeds", static_cast<unsigned>(seeds.which()));
}

Result<Request> ReadReleaseLeases(capnp::List<uint64_t>::Reader in) {
  ReleaseLeases release;
  QUARRY_RETURN_IF_ERROR(ReadNumbers(in, kListedMax, "leases", release.leases));
  return release;
}

Result<Request> ReadReadEmbeddings(schema::ReadEmbeddings::Reader in, const Limits& limits) {
  ReadEmbeddings read = {.table = ToString(in.getTable())};
  QUARRY_RETURN_IF_ERROR(ReadIds(in.getIds(), limits.ids_max, read.ids));
  return read;
}

Result<Request> ReadCommitEmbeddings(schema::CommitEmbeddings::Reader in) {
  CommitEmbeddings commit = {.number = in.getNumber()};
  QUARRY_RETURN_IF_ERROR(ReadRecords(in.getUpdates(), "tables", commit.updates,
                                     [](auto update, EmbeddingUpdate& to) { return Read(update, to); }));
  return commit;
}

Result<Request> ReadPut(schema::Put::Reader in) {
  Put put = {
      .number = in.getNumber(), .sync = !in.getUnsynced(), .piece = in.getPiece(), .last = in.getLast()};
  QUARRY_RETURN_IF_ERROR(ReadRecords(in.getTables(), "tables", put.tables,
                                     [](auto rows, PutRows& to) { return Read(rows, to); }));
  return put;
}

Result<Request> ReadSaveTraining(schema::SaveTraining::Reader in) {
  SaveTraining save = {.name = ToString(in.getName()),
                       .settings = ToString(in.getSettings()),
                       .state_bytes = in.getStateBytes(),
                       .offset = in.getOffset(),
                       .with_embeddings = in.getWithEmbeddings(),
                       .config = ToString(in.getConfig())};
  QUARRY_RETURN_IF_ERROR(Read(in.getPiece(), save.piece));
  return save;
}

Result<Request> ReadQuery(schema::Query::Reader in) {
  Query query = {
      .connection = in.getConnection(), .script = in.getScript(), .parameters = in.getParameters()};
  QUARRY_RETURN_IF_ERROR(Read(in.getText(), query.text));
  QUARRY_RETURN_IF_ERROR(Read(in.getValues(), query.values));
  return query;
}

Result<Request> ReadRequest(schema::Request::Reader in, const Limits& limits) {
  switch (in.which()) {
    case schema::Request::HELLO:
      return ReadHello(in.getHello());
    case schema::Request::OPEN_SESSION:
      return ReadOpenSession(in.getOpenSession());
    case schema::Request::DESCRIBE:
      return Describe{};
    case schema::Request::LOOKUP:
      return ReadLookup(in.getLookup(), limits);
    case schema::Request::SAMPLE:
      return ReadSample(in.getSample(), limits);
    case schema::Request::OPEN_STREAM:
      return ReadOpenStream(in.getOpenStream());
    case schema::Request::START_PASS:
      return ReadStartPass(in.getStartPass());
    case schema::Request::NEXT_BATCH:
      return NextBatch{in.getNextBatch()};
    case schema::Request::CLOSE_STREAM:
      return CloseStream{in.getCloseStream()};
    case schema::Request::RELEASE_LEASES:
      return ReadReleaseLeases(in.getReleaseLeases());
    case schema::Request::READ_LEASE: {
      const auto read = in.getReadLease();
      return ReadLease{read.getLease(), read.getOffset(), read.getBytes()};
    }
    case schema::Request::READ_EMBEDDINGS:
      return ReadReadEmbeddings(in.getReadEmbeddings(), limits);
    case schema::Request::COMMIT_EMBEDDINGS:
      return ReadCommitEmbeddings(in.getCommitEmbeddings());
    case schema::Request::PUT:
      return ReadPut(in.getPut());
    case schema::Request::TAKE_SNAPSHOT:
      return TakeSnapshot{};
    case schema::Request::RELEASE_SNAPSHOT:
      return ReleaseSnapshot{in.getReleaseSnapshot()};
    case schema::Request::STATS:
      return Stats{in.getStats()};
    case schema::Request::PING:
      return Ping{};
    case schema::Request::CANCEL:
      return Cancel{in.getCancel()};
    case schema::Request::SAVE_TRAINING:
      return ReadSaveTraining(in.getSaveTraining());
    case schema::Request::READ_TRAINING: {
      const auto read = in.getReadTraining();
      return ReadTraining{ToString(read.getName()), !read.getWithoutState()};
    }
    case schema::Request::READ_EDGES: {
      const auto read = in.getReadEdges();
      return ReadEdges{ToString(read.getTopology()), read.getFirst(), read.getCount()};
    }
    case schema::Request::OPEN_SQL:
      return OpenSql{in.getOpenSql().getWrite(), in.getOpenSql().getTimeoutSeconds()};
    case schema::Request::CLOSE_SQL:
      return CloseSql{in.getCloseSql()};
    case schema::Request::QUERY:
      return ReadQuery(in.getQuery());
    case schema::Request::FETCH:
      return Fetch{in.getFetch().getCursor(), in.getFetch().getNext()};
    case schema::Request::CLOSE_QUERY:
      return CloseQuery{in.getCloseQuery()};
    case schema::Request::FORGET_PUT:
      return ForgetPut{in.getForgetPut()};
    case schema::Request::GET_STATUS:
      return GetStatus{};
    case schema::Request::MAINTAIN: {
      QUARRY_TRY(MaintenanceTask task, ReadTask(in.getMaintain()));
      return Maintain{std::move(task)};
    }
    case schema::Request::READ_MANIFEST:
      return ReadManifest{};
  }
  return UnknownKind("a request", static_cast<unsigned>(in.which()));
}

}  // namespace

Result<std::vector<std::byte>> EncodeRequest(uint64_t id, const Request& request, const Limits& limits) {
  QUARRY_RETURN_IF_ERROR(Check(request, limits));
  const bool hello = std::holds_alternative<Hello>(request);
  const uint32_t bytes_max = hello ? limits.hello_bytes_max : limits.message_bytes_max;
  capnp::MallocMessageBuilder message(FirstSegmentWords(bytes_max));
  std::visit(RequestWriter{message.initRoot<schema::Request>()}, request);
  return FrameOf(id, 0, message, bytes_max, "request");
}

Result<Request> DecodeRequest(const Frame& frame, const Limits& limits) {
  if (frame.id == 0) return MakeStatus(Code::kCorruption, "a request without an id");
  if (frame.fds > 0) {
    return MakeStatus(Code::kCorruption, "request {}: {} file descriptors come with it; none do", frame.id,
                      frame.fds);
  }
  QUARRY_TRY(Request request,
             (ReadFrame<schema::Request, Request>(frame, limits, "request", [&](schema::Request::Reader in) {
               return ReadRequest(in, limits);
             })));
  QUARRY_RETURN_IF_ERROR(Check(request, limits));
  return request;
}

}  // namespace quarry::wire
