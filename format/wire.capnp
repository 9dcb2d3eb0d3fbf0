# The messages between the local server and its clients (docs/protocol.md has what they mean). A peer ignores
# fields that it does not know, and sees defaults for those that the other did not send. Never renumber or
# reuse an ordinal; Hello and Welcome keep the places of their fields in all versions.
@0x9e2b6c41d7f3a805;

using Cxx = import "/capnp/c++.capnp";
$Cxx.namespace("quarry::wire::schema");

# Bytes in a region of shared memory.
struct Range {
  region @0 :UInt32;
  offset @1 :UInt64;
  bytes @2 :UInt64;
}

struct Lease {
  id @0 :UInt64;
  range @1 :Range;       # region 0: in no region of the client's; read with ReadLease
}

struct Region {
  id @0 :UInt32;
  bytes @1 :UInt64;
  access @2 :UInt8;      # 0 client reads, 1 client writes
}

# From server to client.
struct Payload {
  union {
    inline @0 :Data;
    lease @1 :Lease;
  }
}

# From client to server.
struct Bulk {
  union {
    inline @0 :Data;
    range @1 :Range;
  }
}

struct NodeIds {
  union {
    list @0 :List(UInt32);
    range @1 :Range;     # of uint32
  }
}

struct RowIds {
  union {
    list @0 :List(UInt64);
    range @1 :Range;     # of uint64
  }
}

# ---- requests

struct Request {
  union {
    hello @0 :Hello;
    openSession @1 :OpenSession;
    describe @2 :Void;
    lookup @3 :Lookup;
    sample @4 :Sample;
    openStream @5 :OpenStream;
    startPass @6 :StartPass;
    nextBatch @7 :UInt64;        # stream
    closeStream @8 :UInt64;      # stream
    releaseLeases @9 :List(UInt64);
    readLease @10 :ReadLease;
    readEmbeddings @11 :ReadEmbeddings;
    commitEmbeddings @12 :CommitEmbeddings;
    put @13 :Put;
    takeSnapshot @14 :Void;
    releaseSnapshot @15 :UInt64;
    stats @16 :UInt64;           # stream; 0 = the server
    ping @17 :Void;
    cancel @18 :UInt64;          # request
    saveTraining @19 :SaveTraining;
    readTraining @20 :ReadTraining;
    readEdges @21 :ReadEdges;
    openSql @22 :OpenSql;
    closeSql @23 :UInt64;        # SQL connection
    query @24 :Query;
    fetch @25 :Fetch;
    closeQuery @26 :UInt64;      # cursor
    forgetPut @27 :UInt64;       # number
    getStatus @28 :Void;
    maintain @29 :Maintain;
    readManifest @30 :Void;
  }
}

struct Hello {
  magic @0 :UInt64;
  versionMin @1 :UInt16;
  versionMax @2 :UInt16;
  capabilities @3 :UInt64;       # bits: 0 shared memory, 1 inline
  messageBytesMax @4 :UInt32;
}

struct OpenSession {
  clientId @0 :Data;
  budgetBytes @1 :UInt64;
  budgetBytesMin @2 :UInt64;
  waitMs @3 :UInt32;
}

struct Lookup {
  table @0 :Text;
  ids @1 :NodeIds;
  snapshot @2 :UInt64;
}

struct Sample {
  topology @0 :Text;
  seeds @1 :List(UInt32);
  fanouts @2 :List(UInt32);
  direction @3 :UInt8;           # 0 in, 1 out, 2 both
  streamSeed @4 :UInt64;
  edgeIds @5 :Bool;
  replace @6 :Bool;
  relationFanouts @7 :List(UInt32);    # of each hop, by relation; empty = edges of all types are alike
  weighted @8 :Bool;
}

struct LiveSpec {
  featureTable @0 :Text;
  topology @1 :Text;
  direction @2 :UInt8;
  fanouts @3 :List(UInt32);
  batchSize @4 :UInt32;
  cacheBytes @5 :UInt64;
  seed @6 :UInt64;
  replace @7 :Bool;
  edgeIds @8 :Bool;
  sampler @9 :UInt8;             # 0 neighbor, 1 labor
  batchDependency @10 :UInt32;
  weighted @11 :Bool;
  relationFanouts @12 :List(UInt32);   # of each hop, by relation; empty = edges of all types are alike
}

struct PlannedSpec {
  layout @0 :Text;
  live @1 :LiveSpec;             # null = passes over other seeds are refused
}

struct SuperbatchSpec {
  live @0 :LiveSpec;
  policy @1 :Text;
  seedOrder @2 :Text;
  packing @3 :UInt8;             # 0 always, 1 never, 2 cheaper
  diskBytes @4 :UInt64;
}

struct PartitionedSpec {
  live @0 :LiveSpec;             # cacheBytes does not count
  partitioning @1 :Text;
  buffer @2 :UInt32;             # parts that are held; 0 = as many as the session's budget has room for
  logical @3 :UInt32;            # 0 = as many as there are parts
}

struct OpenStream {
  road :union {
    live @0 :LiveSpec;
    planned @1 :PlannedSpec;
    superbatch @2 :SuperbatchSpec;
    partitioned @7 :PartitionedSpec;
  }
  mode @3 :UInt8;                # 0 exclusive, 1 shared, 2 split
  group @4 :Text;
  members @5 :UInt32;
  snapshot @6 :UInt64;
}

struct StartPass {
  stream @0 :UInt64;
  seeds :union {
    split @1 :UInt8;             # 1 train, 2 valid, 3 test
    ids @2 :NodeIds;
  }
  shuffle @3 :Bool;
  pass @4 :UInt64;
  ordered @5 :Bool;
}

struct ReadLease {
  lease @0 :UInt64;
  offset @1 :UInt64;
  bytes @2 :UInt32;
}

struct ReadEmbeddings {
  table @0 :Text;
  ids @1 :RowIds;
}

struct EmbeddingUpdate {
  table @0 :Text;
  rows @1 :UInt64;
  dim @2 :UInt32;
  stateDim @3 :UInt32;
  block @4 :Bulk;
}

struct CommitEmbeddings {
  number @0 :UInt64;
  updates @1 :List(EmbeddingUpdate);
}

struct PutRows {
  table @0 :Text;
  rows @1 :UInt64;
  rowBytes @2 :UInt32;
  block @3 :Bulk;
}

# What a put changes of the graph. Where it comes in pieces, the first says which topology and nodes.
struct PutGraph {
  topology @0 :Text;
  firstNode @1 :UInt64;          # of added nodes: the node count so far
  nodes @2 :UInt64;              # that are added
  names @3 :List(Text);          # of the next of them
  edges @4 :UInt64;
  weighted @5 :Bool;
  remove @6 :Bool;               # the edges go
  block @7 :Bulk;                # sources, destinations (uint32), weights (float32), removed nodes (uint32)
  removedNodes @8 :UInt64;       # how many
  relation @9 :UInt32;           # of all the edges
  nodeType @10 :Text;            # of all added nodes; "" = nodes have no types
}

struct GraphChanged {
  timestamp @0 :UInt64;
  added @1 :UInt64;
  removed @2 :UInt64;
  present @3 :UInt64;
  absent @4 :UInt64;
  firstNode @5 :UInt64;
  nodesAdded @6 :UInt64;
  nodeCount @7 :UInt64;
  edgeCount @8 :UInt64;
  runs @9 :UInt64;
  nodesRemoved @10 :UInt64;
}

struct Put {
  number @0 :UInt64;
  unsynced @1 :Bool;
  tables @2 :List(PutRows);
  piece @3 :UInt64;              # of a put in pieces, from 1; 0 = all of it
  last @4 :Bool;                 # piece, which commits all of them
  graph @5 :PutGraph;            # null: it stays as it is
}

# A piece of the state; the last one saves it.
struct SaveTraining {
  name @0 :Text;
  settings @1 :Text;
  stateBytes @2 :UInt64;         # of all pieces
  offset @3 :UInt64;
  piece @4 :Bulk;
  withEmbeddings @5 :Bool;
  config @6 :Text;
}

struct ReadTraining {
  name @0 :Text;
  withoutState @1 :Bool;
}

struct ReadEdges {
  topology @0 :Text;
  first @1 :UInt64;
  count @2 :UInt32;
  list @3 :UInt64;               # that they have to be of; 0 = whichever there is
}

struct OpenSql {
  write @0 :Bool;
  timeoutSeconds @1 :Float64;    # 0 = the server's own limit
}

struct Query {
  connection @0 :UInt64;
  script @1 :Bool;               # statements one after the other, without parameters
  text @2 :Bulk;
  parameters @3 :UInt32;
  values @4 :Bulk;               # of the parameters, one behind the other
}

struct Fetch {
  cursor @0 :UInt64;
  next @1 :Bool;                 # the next statement, instead of rows of this one
}

struct CompactTable {
  table @0 :Text;
  dryRun @1 :Bool;
  topology @2 :Bool;             # the table's name is one of a topology
}

struct BuildLayout {
  name @0 :Text;
  live @1 :LiveSpec;
  seedOrder @2 :Text;
  policy @3 :Text;
  epochs @4 :UInt32;
  diskBytes @5 :UInt64;          # 0 = no limit
  hashFunctions @6 :UInt32;
  threads @7 :UInt32;            # 0 = as many as processors
  resume @8 :Bool;
  ranks @9 :UInt32;              # a layout for each of so many trainers; 0 = one for all
  rankPartitioning @10 :Text;    # whose parts say which of them trains on a node; empty = batches in turn
}

struct RebuildLayout {
  name @0 :Text;
  full @1 :Bool;
  dryRun @2 :Bool;
}

struct CreateEmbeddings {
  table @0 :Text;
  rowCount @1 :UInt64;
  dim @2 :UInt32;
  elementType @3 :UInt8;
  optimizer @4 :UInt8;           # 0 sgd, 1 adagrad, 2 adam
  init @5 :UInt8;                # 0 zeros, 1 uniform, 2 normal
  initScale @6 :Float32;
  seed @7 :UInt64;
}

struct CreateTable {
  table @0 :Text;
  elementType @1 :UInt8;
  dim @2 :UInt64;
}

struct ExportDatabase {
  path @0 :Text;                 # of the folder to make, from the root on
  format @1 :Text;
  table @2 :Text;                # of the features
  topology @3 :Bool;
  features @4 :Bool;
  labels @5 :Bool;
  split @6 :Bool;
  embeddings @7 :Bool;
}

struct ExplainLayout {
  name @0 :Text;
  epochs @1 :UInt64;
}

struct TraceLayout {
  name @0 :Text;
  cacheBytes @1 :List(UInt64);
}

struct BuildPartitioning {
  name @0 :Text;
  topology @1 :Text;
  table @2 :Text;
  rows @3 :Bool;                 # parts have those of the table
  method @4 :Text;
  parts @5 :UInt32;              # 0 = as many as the device reads well
  chunkShare @6 :Float64;
  trainingFirst @7 :Bool;
  seed @8 :UInt64;
}

struct Maintain {
  union {
    verify @0 :Void;
    compact @1 :CompactTable;
    checkpoint @2 :Text;         # path of the folder to make, from the root on
    buildLayout @3 :BuildLayout;
    rebuildLayout @4 :RebuildLayout;
    dropLayout @5 :Text;
    calibrate @6 :Bool;          # measures again
    createEmbeddings @7 :CreateEmbeddings;
    dropEmbeddings @8 :Text;
    dropTraining @9 :Text;
    dropTable @10 :Text;
    inspect @11 :Void;
    export @12 :ExportDatabase;
    explainLayout @13 :ExplainLayout;
    traceLayout @14 :TraceLayout;
    createTable @15 :CreateTable;
    buildPartitioning @16 :BuildPartitioning;
    dropPartitioning @17 :Text;
  }
}

# ---- responses

struct Response {
  union {
    failure @0 :Failure;
    done @1 :Void;
    welcome @2 :Welcome;
    sessionOpened @3 :SessionOpened;
    description @4 :Description;
    rows @5 :Rows;
    sampled @6 :Payload;
    streamOpened @7 :StreamOpened;
    passStarted @8 :UInt64;      # batches
    batch @9 :Batch;
    passEnded @10 :Void;
    chunk @11 :Data;
    embeddingRows @12 :EmbeddingRows;
    embeddingsCommitted @13 :EmbeddingsCommitted;
    written @14 :UInt64;         # timestamp
    snapshotTaken @15 :SnapshotTaken;
    counters @16 :List(Counter);
    training @17 :Training;
    edges @18 :Edges;
    sqlOpened @19 :SqlOpened;
    statement @20 :Statement;
    sqlRows @21 :SqlRows;
    serverStatus @22 :ServerStatus;
    progress @23 :Progress;
    maintained @24 :MaintenanceReport;
    manifest @25 :Payload;
    graphChanged @26 :GraphChanged;
  }
}

struct Failure {
  code @0 :UInt8;
  message @1 :Text;
}

struct ServerLimits {
  messageBytesMax @0 :UInt32;
  outstandingMax @1 :UInt32;
  idsMax @2 :UInt32;
  sessionsMax @3 :UInt32;
  budgetBytes @4 :UInt64;
}

struct Welcome {
  magic @0 :UInt64;
  version @1 :UInt16;
  capabilities @2 :UInt64;
  serverId @3 :Data;
  limits @4 :ServerLimits;
}

struct SessionOpened {
  session @0 :UInt64;
  budgetBytes @1 :UInt64;
  regions @2 :List(Region);
}

struct TableInfo {
  name @0 :Text;
  elementType @1 :UInt8;
  rowCount @2 :UInt64;
  dim @3 :UInt64;
  generation @4 :UInt64;
}

struct TopologyInfo {
  name @0 :Text;
  nodeCount @1 :UInt64;
  edgeCount @2 :UInt64;
  relationCount @3 :UInt64;
  hasCsr @4 :Bool;
  undirected @5 :Bool;
  deduplicated @6 :Bool;
  weighted @7 :Bool;
}

struct LayoutInfo {
  name @0 :Text;
  table @1 :Text;
  topology @2 :Text;
  seed @3 :UInt64;
  batchSize @4 :UInt32;
  fanouts @5 :List(UInt32);
  direction @6 :UInt8;
  policy @7 :Text;
  seedOrder @8 :Text;
  epochs @9 :UInt32;
  batchCount @10 :UInt64;
  cacheRows @11 :UInt64;
  fileBytes @12 :UInt64;
  servable @13 :Bool;
  gpuCacheRows @14 :UInt64;
  batchesPerSegment @15 :UInt64;
  replace @16 :Bool;
  sampler @17 :UInt8;
  batchDependency @18 :UInt32;
  weighted @19 :Bool;
  relationFanouts @20 :List(UInt32);
  edgeIds @21 :Bool;
}

struct EmbeddingInfo {
  name @0 :Text;
  rowCount @1 :UInt64;
  dim @2 :UInt32;
  stateDim @3 :UInt32;
  elementType @4 :UInt8;
  optimizer @5 :UInt8;           # 0 sgd, 1 adagrad, 2 adam
}

struct Description {
  databaseId @0 :Data;
  nodeCount @1 :UInt64;
  classCount @2 :UInt64;
  path @8 :Text;                 # the folder of the database, where the server runs
  tables @3 :List(TableInfo);
  topologies @4 :List(TopologyInfo);
  layouts @5 :List(LayoutInfo);
  embeddings @6 :List(EmbeddingInfo);
  limits @7 :ServerLimits;
}

struct Rows {
  rows @0 :UInt64;
  elementType @1 :UInt8;
  dim @2 :UInt32;
  payload @3 :Payload;
}

struct OpenedParts {
  directory @0 :Text;            # of the partitioning, which names its build
  buffer @1 :UInt32;             # as tuned, and so is logical
  logical @2 :UInt32;
  classCount @3 :UInt32;
  trainNodes @4 :UInt64;         # with a label
  validNodes @5 :UInt64;
  testNodes @6 :UInt64;
  batchNodesMax @7 :UInt64;
}

struct StreamOpened {
  stream @0 :UInt64;
  featureDim @1 :UInt32;
  slots @2 :UInt32;
  timestamp @3 :UInt64;
  regions @4 :List(Region);
  parts @5 :OpenedParts;         # of the partitioned road; null = it is another
}

struct Batch {
  index @0 :UInt64;
  payload @1 :Payload;
  rows @2 :Range;                # null = in the payload
}

struct EmbeddingRows {
  rows @0 :UInt64;
  dim @1 :UInt32;
  stateDim @2 :UInt32;
  payload @3 :Payload;
}

struct EmbeddingsCommitted {
  timestamp @0 :Int64;
  staleRows @1 :UInt64;
}

struct SnapshotTaken {
  snapshot @0 :UInt64;
  timestamp @1 :UInt64;
}

struct Counter {
  name @0 :Text;
  value @1 :Float64;
}

struct Training {
  settings @0 :Text;
  createdUtc @1 :Text;
  timestamp @2 :Int64;           # of the embedding tables that belong to it; -1: none
  state @3 :Payload;
  config @4 :Text;
}

struct Edges {
  edges @0 :UInt64;
  payload @1 :Payload;
  list @2 :UInt64;               # that they are of
}

struct SqlColumn {
  name @0 :Text;
  type @1 :Text;
  hidden @2 :Bool;
}

struct SqlTable {
  name @0 :Text;
  columns @1 :List(SqlColumn);
}

struct SqlOpened {
  connection @0 :UInt64;
  tables @1 :List(SqlTable);
}

struct Statement {
  cursor @0 :UInt64;
  columns @1 :List(Text);
}

struct SqlRows {
  bytes @0 :Data;                # rows go on from one page to the next
  last @1 :Bool;
}

struct SessionStatus {
  id @0 :UInt64;
  pid @1 :UInt32;
  uid @2 :UInt32;
  seconds @3 :Float64;           # since it connected
  budgetBytes @4 :UInt64;
  usedBytes @5 :UInt64;
  outstanding @6 :UInt64;        # requests without an answer
  leases @7 :UInt64;
  bytesSent @8 :UInt64;          # through the socket
  sharedBytes @9 :UInt64;        # put into shared memory
  requests @10 :UInt64;          # so far
}

struct StreamStatus {
  id @0 :UInt64;
  session @1 :UInt64;
  road @2 :Text;                 # live, planned, superbatch
  group @3 :Text;                # empty: exclusive
  batches @4 :UInt64;            # delivered
  bytes @5 :UInt64;
  held @6 :UInt32;               # batches leased
  waiting @7 :UInt32;            # nextBatch without an answer
  slots @8 :UInt32;
  readBytes @9 :UInt64;          # of the pass, and so are the following
  cacheLookups @10 :UInt64;
  cacheHits @11 :UInt64;
  consumerWaitSeconds @12 :Float64;
}

struct ServerStatus {
  counters @0 :List(Counter);
  sessions @1 :List(SessionStatus);
  streams @2 :List(StreamStatus);
  sessionsLeftOut @3 :UInt64;    # for which a message has no room
  streamsLeftOut @4 :UInt64;
}

struct Progress {
  phase @0 :Text;
  done @1 :UInt64;
  total @2 :UInt64;              # 0 = unknown
}

struct Damage {
  kind @0 :UInt8;
  name @1 :Text;
  firstRow @2 :UInt64;
  rowCount @3 :UInt64;           # 0: something other than rows
}

struct MaintenanceReport {
  counters @0 :List(Counter);
  faults @1 :List(Text);
  notes @2 :List(Text);
  damages @3 :List(Damage);
}
