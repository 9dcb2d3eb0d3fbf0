# The records that may gain fields without a new format version: a reader ignores fields that it does not know,
# and sees defaults for those that a writer did not. Never renumber or reuse an ordinal.
@0xb7c6f2a9d41e5f03;

using Cxx = import "/capnp/c++.capnp";
$Cxx.namespace("quarry::schema");

struct Section {
  name @0 :Text;
  offset @1 :UInt64;
  bytes @2 :UInt64;
  checksum @3 :UInt64;   # of the whole section; 0 where checkedBy is set
  checkedBy @4 :Text;    # the section that holds one checksum per page or cell of this one
}

struct Footer {
  sections @0 :List(Section);
}

struct TableRecord {
  name @0 :Text;
  file @1 :Text;
  generation @2 :UInt64;
  elementType @3 :UInt8;
  rowCount @4 :UInt64;
  dim @5 :UInt64;
  fileBytes @6 :UInt64;
  folded @7 :UInt64;       # the file holds the row versions up to this timestamp
  addedRows @8 :UInt64;    # of rowCount: those behind the file's, which are versions alone
}

struct TopologyRun {
  file @0 :Text;
  generation @1 :UInt64;
  timestamp @2 :UInt64;
  commits @3 :UInt64;
  edgesBefore @4 :UInt64;
  added @5 :UInt64;
  removed @6 :UInt64;
  lists @7 :UInt64;
  fileBytes @8 :UInt64;
}

struct TopologyRecord {
  name @0 :Text;
  file @1 :Text;
  generation @2 :UInt64;
  nodeCount @3 :UInt64;
  edgeCount @4 :UInt64;
  relationCount @5 :UInt64;
  hasCsr @6 :Bool;
  deduplicated @7 :Bool;
  undirected @8 :Bool;
  fileBytes @9 :UInt64;
  weighted @10 :Bool;
  folded @11 :UInt64;      # the file holds the commits of edges up to this timestamp
  runs @12 :List(TopologyRun);
  addedNodes @13 :UInt64;  # of nodeCount: those behind the file's
  byRelation @14 :Bool;    # a list has its neighbors by relation
  distinct @15 :Bool;      # no two edges have the same nodes and the same relation
}

struct DeviceRecord {
  randomReadsPerSecond @0 :Float64;
  sequentialBytesPerSecond @1 :Float64;
  writeBytesPerSecond @2 :Float64;
  gatherBytesPerSecond @3 :Float64;
  measuredUtc @4 :Text;
  # Of one core; 0 = not measured (a record of an older version).
  checksumBytesPerSecond @5 :Float64;
  copyBytesPerSecond @6 :Float64;
  decodeBytesPerSecond @7 :Float64;
  requestSeconds @8 :Float64;
}

struct LayoutBase {
  generation @0 :UInt64;
  fileBytes @1 :UInt64;
}

struct LayoutRecord {
  name @0 :Text;
  directory @1 :Text;
  generation @2 :UInt64;
  table @3 :Text;
  tableGeneration @4 :UInt64;
  topology @5 :Text;
  topologyGeneration @6 :UInt64;
  timestamp @7 :UInt64;
  seed @8 :UInt64;
  batchSize @9 :UInt32;
  fanouts @10 :List(UInt32);
  direction @11 :UInt8;
  policy @12 :Text;
  seedOrder @13 :Text;
  epochs @14 :UInt32;
  batchCount @15 :UInt64;
  cacheRows @16 :UInt64;
  batchesPerSegment @17 :UInt64;   # 0 = no segment caches
  hashFunctions @18 :UInt32;
  fileBytes @19 :UInt64;
  traceBytes @20 :UInt64;
  rowBytesRead @21 :UInt64;
  usefulBytes @22 :UInt64;
  predictedSeconds @23 :Float64;
  measuredSeconds @24 :Float64;    # 0 = no epoch was trained from it
  measuredBytes @25 :UInt64;
  planSeconds @26 :Float64;
  planBytesWritten @27 :UInt64;
  planBytesRead @28 :UInt64;
  createdUtc @29 :Text;
  gpuCacheRows @30 :UInt64;        # of cacheRows
  accesses @31 :UInt64;            # rows that the batches of a cycle use
  hits @32 :UInt64;                # of these, found in a cache
  gpuHits @33 :UInt64;
  diskBytesMax @34 :UInt64;        # 0 = no limit
  traceGeneration @35 :UInt64;     # 0 = the layout's
  bases @36 :List(LayoutBase);     # of a patched layout
  replace @37 :Bool;
  sampler @38 :UInt8;              # 0 neighbor, 1 labor
  batchDependency @39 :UInt32;
  weighted @40 :Bool;
  rank @41 :UInt32;                # of a layout for one of several trainers
  ranks @42 :UInt32;               # 0 = all batches are one trainer's
  rankPartitioning @43 :Text;      # what training nodes were divided by; empty = batch by batch
  relationFanouts @44 :List(UInt32);
  edgeIds @45 :Bool;               # blocks say which edges they have
  cacheBytes @46 :UInt64;          # 0 = of cacheRows rows of the table
}

struct EmbeddingRecord {
  name @0 :Text;
  file @1 :Text;
  generation @2 :UInt64;
  pageBytes @3 :UInt32;
  pageCount @4 :UInt32;
  mapFile @5 :Text;          # "" = no checkpoint yet
  mapGeneration @6 :UInt64;  # 0 = no checkpoint yet
  rowCount @7 :UInt64;
  dim @8 :UInt32;
  elementType @9 :UInt8;
  optimizer @10 :UInt8;
  init @11 :UInt8;
  initScale @12 :Float32;
  seed @13 :UInt64;
  timestamp @14 :Int64;      # of the last checkpoint; -1 = never
  createdUtc @15 :Text;
  keptMapFile @16 :Text;          # of an earlier checkpoint that stays; "" = none
  keptMapGeneration @17 :UInt64;  # 0 = none
  keptTimestamp @18 :Int64;       # of that checkpoint; 0 where there is none
}

struct TrainingRecord {
  name @0 :Text;
  file @1 :Text;
  generation @2 :UInt64;
  fileBytes @3 :UInt64;
  settings @4 :Text;
  timestamp @5 :Int64;
  createdUtc @6 :Text;
  config @7 :Text;
}

struct PartitioningRecord {
  name @0 :Text;
  directory @1 :Text;
  generation @2 :UInt64;
  topology @3 :Text;
  topologyGeneration @4 :UInt64;
  table @5 :Text;            # "" = it has no rows
  tableGeneration @6 :UInt64;
  timestamp @7 :UInt64;
  method @8 :Text;
  seed @9 :UInt64;
  partCount @10 :UInt32;
  nodeCount @11 :UInt64;
  edgeCount @12 :UInt64;
  cutEdges @13 :UInt64;
  fileBytes @14 :UInt64;
  buildSeconds @15 :Float64;
  createdUtc @16 :Text;
  partsGeneration @17 :UInt64;  # of parts.qpp; 0 = generation
  bucketsBytes @18 :UInt64;     # of buckets.qpp; 0 = there is none
}

struct NodeType {
  name @0 :Text;
  first @1 :UInt64;
  count @2 :UInt64;
  featureTable @3 :Text;     # "" = nodes of the type have no rows
  classCount @4 :UInt64;
  later @5 :List(TypeRange); # of its nodes, behind those of other types
}

struct TypeRange {
  first @0 :UInt64;
  count @1 :UInt64;
}

struct EdgeType {
  source @0 :UInt32;         # places among the node types
  name @1 :Text;
  destination @2 :UInt32;
  edgeCount @3 :UInt64;
}

struct Manifest {
  databaseId @0 :Data;
  nodeCount @1 :UInt64;
  classCount @2 :UInt64;
  source @3 :Text;
  createdUtc @4 :Text;
  tables @5 :List(TableRecord);
  topologies @6 :List(TopologyRecord);
  hasEntityNames @7 :Bool;
  hasRelationNames @8 :Bool;
  device @9 :DeviceRecord;         # null = not calibrated
  layouts @10 :List(LayoutRecord);
  embeddings @11 :List(EmbeddingRecord);
  trainings @12 :List(TrainingRecord);
  partitionings @13 :List(PartitioningRecord);
  grown @14 :UInt64;               # timestamp of the last commit of nodes; 0 = none
  nodesBefore @15 :UInt64;         # node count before that commit
  nodeTypes @16 :List(NodeType);   # empty = one type
  edgeTypes @17 :List(EdgeType);   # by relation id
}
