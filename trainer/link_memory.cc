#include "link_memory.h"

#include <algorithm>

#include "link_decoder.h"
#include "link_encoder.h"
#include "link_evaluate.h"
#include "link_state.h"
#include "link_vectors.h"
#include "quarry/base/random.h"
#include "quarry/base/units.h"
#include "quarry/buffer/page_file.h"
#include "quarry/embedding/embedding_store.h"
#include "quarry/io/buffer.h"
#include "quarry/storage/edges.h"

namespace quarry {
namespace {

// Random streams of a seed, apart from each other.
constexpr uint64_t kNodeStream = 1;
constexpr uint64_t kRelationStream = 2;

uint64_t RecordBytes(const EmbeddingSpec& spec) {
  return RoundUp(sizeof(int64_t) + (uint64_t{spec.dim} + spec.state_dim()) * sizeof(float), sizeof(int64_t));
}

// The validation cache of a table of which a batch uses `batch_rows`: at most four times the rows in
// flight, in vectors that double, with hash table, log and free list beside.
uint64_t CacheBytes(const LinkTrainOptions& options, const EmbeddingSpec& spec, uint64_t batch_rows) {
  if (options.mode != AsyncMode::kOac) return 0;
  constexpr uint64_t kRowOverhead = 96;
  const uint64_t log_rows = 4 * options.batches_in_flight * batch_rows;
  const uint64_t rows = std::min(spec.row_count, log_rows);
  return 2 * rows * (RecordBytes(spec) + kRowOverhead) + 4 * log_rows * 2 * sizeof(int64_t);
}

// As BufferPool counts it, or a little more: frames and copies of them that are being written, what is known
// of each, and of each page of the file, and a piece of its map.
uint64_t PooledBytes(uint64_t page_bytes, uint64_t pages, uint64_t frames) {
  constexpr uint64_t kPoolOverhead = 128 * kKiB, kFrameOverhead = 256, kPageOverhead = 80;
  constexpr uint64_t kWriteBuffers = 64;
  return kPoolOverhead + pages * kPageOverhead + frames * kFrameOverhead +
         IoBuffer::MappedBytes(frames * page_bytes) +
         IoBuffer::MappedBytes(std::min(frames / 4, kWriteBuffers) * page_bytes) +
         IoBuffer::MappedBytes(
             std::clamp<uint64_t>(pages * sizeof(PageEntry) + kPageBytes, 2 * kPageBytes, kMiB));
}

// Scores, queries and staged gradients of LinkDecoder, and the gradients by row.
uint64_t DecoderBytes(const LinkTrainOptions& options, uint64_t node_rows, uint64_t relation_rows) {
  const LinkSpec& spec = options.spec;
  const uint64_t chunks = CeilDiv(options.batch_edges, options.chunk_edges);
  const uint64_t staged = 2 * (3 * uint64_t{options.batch_edges} + chunks * options.negatives) * spec.dim;
  const uint64_t scratch = 2 * uint64_t{kTileEdges} * (uint64_t{spec.dim} + options.negatives) +
                           (spec.dim + 2) * uint64_t{options.negatives};
  const uint64_t gradients = node_rows * spec.dim + relation_rows * spec.relation_dim();
  return (staged + options.compute_threads * scratch + gradients) * sizeof(float);
}

}  // namespace

LinkCounts CountsOf(const LinkData& data) {
  return {.nodes = data.node_count,
          .relations = data.relation_count,
          .train_edges = data.train_count(),
          .edges = data.train_count() + data.valid.size() + data.test.size(),
          .known_edges = data.train.size() + data.known.size() + data.valid.size() + data.test.size()};
}

LinkCounts CountsOf(const Manifest& manifest) {
  LinkCounts counts{.nodes = manifest.node_count, .relations = 1};
  for (const char* name : {"graph", "valid", "test"}) {
    const TopologyRecord* record = manifest.FindTopology(name);
    if (record == nullptr) continue;
    if (counts.edges == 0) counts.train_edges = record->edge_count;
    counts.relations = std::max<uint64_t>(counts.relations, record->relation_count);
    counts.edges += record->edge_count;
  }
  counts.known_edges = counts.edges;
  return counts;
}

EmbeddingSpec NodeTableSpec(const LinkTrainOptions& options, uint64_t node_count) {
  if (options.feature_dim > 0) {
    return {.row_count = node_count, .dim = options.feature_dim, .optimizer = OptimizerKind::kSgd};
  }
  return {.row_count = node_count,
          .dim = options.spec.dim,
          .optimizer = options.optimizer,
          .init = options.init,
          .init_scale = options.init_scale,
          .seed = MixSeed(options.seed, kNodeStream)};
}

EmbeddingSpec RelationTableSpec(const LinkTrainOptions& options, uint64_t relation_count) {
  return {.row_count = relation_count,
          .dim = options.spec.relation_dim(),
          .optimizer = options.optimizer,
          .init = options.init,
          .init_scale = options.init_scale,
          .seed = MixSeed(options.seed, kRelationStream)};
}

uint64_t LinkFeatureBytes(const LinkTrainOptions& options, uint64_t nodes) {
  return nodes * options.feature_dim * sizeof(float);
}

uint64_t TableBytes(const EmbeddingSpec& spec) {
  return IoBuffer::MappedBytes(spec.row_count * RecordBytes(spec));
}

uint64_t LinkTableBytes(const LinkTrainOptions& options, const LinkCounts& counts) {
  const uint64_t nodes = options.feature_dim > 0 ? counts.nodes * sizeof(int64_t)
                                                 : TableBytes(NodeTableSpec(options, counts.nodes));
  return nodes + TableBytes(RelationTableSpec(options, counts.relations));
}

uint64_t LinkCopyBytes(const LinkTrainOptions& options, const LinkCounts& counts) {
  return options.patience == 0 ? 0 : counts.nodes * NodeTableSpec(options, counts.nodes).dim * sizeof(float);
}

Result<std::unique_ptr<EmbeddingTable>> MakeMemoryTable(const EmbeddingSpec& spec) {
  std::unique_ptr<EmbeddingTable> table = MakeMemoryEmbeddingTable(spec);
  if (table) return table;
  return MakeStatus(Code::kOutOfBudget, "the system refuses the memory for a table of {} rows of {} floats",
                    spec.row_count, spec.dim + spec.state_dim());
}

PoolBytes StoredPoolBytes(const EmbeddingSpec& spec, unsigned workers) {
  constexpr uint64_t kFramesMin = 16;  // least frames of any pool
  const uint64_t page_bytes = SmallestPageBytes(spec);
  const uint64_t page_rows = (page_bytes - sizeof(PageHeader)) / RecordBytes(spec);
  const uint64_t pages = CeilDiv(spec.row_count, page_rows);
  const uint64_t frames_most = std::max(pages, kFramesMin);
  // Each worker holds a page at a time; some more, so that they seldom wait for one another.
  const uint64_t frames_least = std::min(frames_most, 32 + uint64_t{4} * workers);
  return {PooledBytes(page_bytes, pages, frames_least), PooledBytes(page_bytes, pages, frames_most)};
}

uint64_t LinkWorkBytes(const LinkTrainOptions& options, const LinkCounts& counts) {
  const EmbeddingSpec nodes = NodeTableSpec(options, counts.nodes);
  const EmbeddingSpec relations = RelationTableSpec(options, counts.relations);
  const uint64_t chunks = CeilDiv(options.batch_edges, options.chunk_edges);
  const uint64_t slots = 2 * (options.batch_edges + chunks * options.negatives);
  const uint64_t node_rows = LinkInputNodes(options, counts, slots);
  const uint64_t relation_rows = std::min<uint64_t>(options.batch_edges, counts.relations);

  uint64_t bytes = counts.parts != nullptr ? 0 : counts.train_edges * sizeof(uint32_t);  // their order
  bytes += counts.known_edges * 2 * sizeof(Triple);                                      // KnownEdges
  if (options.degree_share > 0) bytes += counts.train_edges * 2 * sizeof(NodeId);
  // Rows of the batches in flight with their ids, and what preparing them sorts.
  const uint64_t row_bytes = node_rows * (RecordBytes(nodes) + sizeof(RowId)) +
                             relation_rows * (RecordBytes(relations) + sizeof(RowId));
  const uint64_t flights = options.mode == AsyncMode::kSync ? 1 : options.batches_in_flight;
  bytes += flights * (row_bytes + slots * (2 * sizeof(uint64_t) + sizeof(uint32_t)) +
                      options.batch_edges * sizeof(uint32_t));
  bytes += CacheBytes(options, nodes, node_rows) + CacheBytes(options, relations, relation_rows);
  bytes += DecoderBytes(options, node_rows, relation_rows) + LinkEncoderBytes(options, counts, slots);
  if (options.patience > 0) bytes += VectorCopy::Bytes(options, counts);
  // Ranking: relations whole, nodes in strips. Which edges are held out, only those who read them know.
  bytes += counts.relations * relations.dim * sizeof(float) + kReadRows * RecordBytes(nodes) +
           RankingBytes(options.spec, counts.nodes, counts.edges, options.compute_threads);
  return RoundUp(bytes, kMiB);
}

uint64_t LinkMemoryBytes(const Manifest& manifest, const LinkTrainOptions& options, LinkTables tables) {
  const LinkCounts counts = CountsOf(manifest);
  uint64_t read_bytes = 0;
  for (const char* name : {"graph", "valid", "test"}) {
    const TopologyRecord* record = manifest.FindTopology(name);
    if (record != nullptr) read_bytes = std::max(read_bytes, EdgeList::Bytes(*record));
  }
  uint64_t table_bytes = LinkTableBytes(options, counts);
  if (tables != LinkTables::kStored) table_bytes += LinkFeatureBytes(options, counts.nodes);
  if (tables == LinkTables::kMemory) table_bytes += LinkCopyBytes(options, counts);
  if (tables == LinkTables::kInState) table_bytes += LinkCheckpointBytes(options, counts);
  if (tables == LinkTables::kStored) {
    table_bytes = StoredPoolBytes(NodeTableSpec(options, counts.nodes), options.workers).least;
    if (options.spec.relation_dim() > 0) {
      table_bytes += StoredPoolBytes(RelationTableSpec(options, counts.relations), options.workers).least;
    }
  }
  const uint64_t train_bytes = table_bytes + LinkWorkBytes(options, counts);
  return RoundUp(counts.edges * sizeof(Triple) + std::max(read_bytes, train_bytes), kMiB);
}

}  // namespace quarry
