#include "quarry/partition/edge_stream.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "quarry/base/random.h"
#include "quarry/base/units.h"
#include "quarry/format/feature_table.h"
#include "quarry/io/scratch_file.h"

namespace quarry {
namespace {

constexpr uint64_t kStreamPieceBytes = 256 * kKiB;
constexpr uint64_t kStreamWriteBytes = 512 * kKiB;
// Smaller writes to a bucket are bound by the requests, not by the bytes.
constexpr uint64_t kBucketWriteBytes = 64 * kKiB;
constexpr uint64_t kBucketBytesMin = 1 * kMiB;
constexpr size_t kEdgesPerRead = 16384;

// How many buckets make the buffers of all of them as large as one bucket.
uint64_t BucketCount(uint64_t edge_count) {
  const uint64_t bytes = edge_count * sizeof(NodePair);
  const auto even =
      static_cast<uint64_t>(std::sqrt(static_cast<double>(bytes) * static_cast<double>(kBucketWriteBytes)));
  return std::max<uint64_t>(1, bytes / std::max(even, kBucketBytesMin));
}

// The buckets of successive edges.
class BucketDraw {
 public:
  BucketDraw(uint64_t seed, uint64_t bucket_count) : rng_(MixSeed(seed, 0)), bucket_count_(bucket_count) {}
  uint64_t operator()() { return rng_.Below(bucket_count_); }

 private:
  Rng rng_;
  const uint64_t bucket_count_;
};

// Where a bucket lies in the scratch file: from a page on.
struct Bucket {
  uint64_t offset = 0;
  uint64_t edges = 0;
  uint64_t written = 0;  // edges of it in the file
  uint64_t buffered = 0;
};

// Throws all edges into their buckets.
Status FillBuckets(EdgeSource& edges, uint64_t seed, const PartitionContext& context, const File& file,
                   std::vector<Bucket>& buckets) {
  constexpr uint64_t kCapacity = kBucketWriteBytes / sizeof(NodePair);
  const uint64_t buffer_bytes = buckets.size() * kBucketWriteBytes;
  QUARRY_TRY(const auto reservation,
             context.budget.Reserve(IoBuffer::MappedBytes(buffer_bytes) + kEdgesPerRead * sizeof(NodePair),
                                    "shuffling edges"));
  QUARRY_TRY(const IoBuffer buffer, IoBuffer::Allocate(buffer_bytes));
  auto* const slots = reinterpret_cast<NodePair*>(buffer.data());
  const auto flush = [&](uint64_t b) -> Status {
    Bucket& bucket = buckets[b];
    const std::span<const std::byte> bytes(reinterpret_cast<const std::byte*>(slots + b * kCapacity),
                                           RoundUp(bucket.buffered * sizeof(NodePair), kPageBytes));
    QUARRY_RETURN_IF_ERROR(
        context.backend.WriteAt(file, bucket.offset + bucket.written * sizeof(NodePair), bytes));
    bucket.written += bucket.buffered;
    bucket.buffered = 0;
    return Status::Ok();
  };
  std::vector<NodePair> read(kEdgesPerRead);
  BucketDraw draw(seed, buckets.size());
  uint64_t done = 0;
  QUARRY_RETURN_IF_ERROR(edges.Rewind());
  while (true) {
    QUARRY_TRY(const size_t count, edges.Read(read));
    if (count == 0) break;
    for (const NodePair& edge : std::span(read).first(count)) {
      const uint64_t b = draw();
      slots[b * kCapacity + buckets[b].buffered++] = edge;
      if (buckets[b].buffered == kCapacity) QUARRY_RETURN_IF_ERROR(flush(b));
    }
    done += count;
    QUARRY_RETURN_IF_ERROR(context.Report("shuffling edges", done, edges.edge_count()));
  }
  for (uint64_t b = 0; b < buckets.size(); ++b) {
    if (buckets[b].buffered > 0) QUARRY_RETURN_IF_ERROR(flush(b));
  }
  return Status::Ok();
}

}  // namespace

uint64_t EdgeStream::ReadBytes() { return IoBuffer::MappedBytes(FileScanner::kDepth * kStreamPieceBytes); }
uint64_t EdgeStreamWriter::WriteBytes() { return IoBuffer::MappedBytes(kStreamWriteBytes); }

EdgeStream::EdgeStream(IoBackend& backend, MemoryBudget& budget, File file, uint64_t node_count,
                       uint64_t edge_count)
    : backend_(backend),
      budget_(budget),
      file_(std::move(file)),
      node_count_(node_count),
      edge_count_(edge_count) {}

Status EdgeStream::Rewind() {
  Close();
  next_ = 0;
  if (edge_count_ == 0) return Status::Ok();
  QUARRY_TRY(reservation_, budget_.Reserve(ReadBytes(), "reading shuffled edges"));
  QUARRY_TRY(scanner_,
             FileScanner::Make(backend_, file_, 0, edge_count_ * sizeof(NodePair), kStreamPieceBytes));
  return Status::Ok();
}

void EdgeStream::Close() {
  scanner_ = nullptr;
  piece_ = {};
  reservation_.Release();
}

Result<size_t> EdgeStream::Read(std::span<NodePair> out) {
  size_t filled = 0;
  while (filled < out.size() && next_ < edge_count_) {
    if (piece_.empty()) {
      QUARRY_TRY(const std::span<const std::byte> bytes, scanner_->Next());
      piece_ = {reinterpret_cast<const NodePair*>(bytes.data()),
                std::min(bytes.size() / sizeof(NodePair), edge_count_ - next_)};
    }
    const size_t count = std::min(piece_.size(), out.size() - filled);
    std::copy_n(piece_.begin(), count, out.begin() + static_cast<std::ptrdiff_t>(filled));
    piece_ = piece_.subspan(count);
    filled += count;
    next_ += count;
  }
  return filled;
}

Result<std::unique_ptr<EdgeStreamWriter>> EdgeStreamWriter::Create(const PartitionContext& context) {
  std::unique_ptr<EdgeStreamWriter> writer(new EdgeStreamWriter(context));
  QUARRY_TRY(writer->reservation_, context.budget.Reserve(WriteBytes(), "writing edges in a random order"));
  QUARRY_TRY(writer->buffer_, IoBuffer::Allocate(kStreamWriteBytes));
  QUARRY_TRY(writer->file_, OpenScratchFile(context.backend, context.scratch_directory + "/edges"));
  return writer;
}

Status EdgeStreamWriter::Append(std::span<const NodePair> edges) {
  constexpr uint64_t kCapacity = kStreamWriteBytes / sizeof(NodePair);
  while (!edges.empty()) {
    const size_t count = std::min<size_t>(edges.size(), kCapacity - buffered_);
    std::memcpy(buffer_.data() + buffered_ * sizeof(NodePair), edges.data(), count * sizeof(NodePair));
    buffered_ += count;
    edges = edges.subspan(count);
    if (buffered_ == kCapacity) QUARRY_RETURN_IF_ERROR(Flush());
  }
  return Status::Ok();
}

Status EdgeStreamWriter::Flush() {
  const std::span<const std::byte> bytes(buffer_.data(), RoundUp(buffered_ * sizeof(NodePair), kPageBytes));
  QUARRY_RETURN_IF_ERROR(backend_.WriteAt(file_, flushed_ * sizeof(NodePair), bytes));
  flushed_ += buffered_;
  buffered_ = 0;
  return Status::Ok();
}

Result<std::unique_ptr<EdgeStream>> EdgeStreamWriter::Finish(uint64_t node_count) {
  if (buffered_ > 0) QUARRY_RETURN_IF_ERROR(Flush());
  return std::unique_ptr<EdgeStream>(
      new EdgeStream(backend_, budget_, std::move(file_), node_count, flushed_));
}

Result<std::unique_ptr<EdgeStream>> ShuffleEdges(EdgeSource& edges, uint64_t seed,
                                                 const PartitionContext& context) {
  // The sizes of buckets are known before the first edge is read: the draws do not depend on edges.
  std::vector<Bucket> buckets(BucketCount(edges.edge_count()));
  BucketDraw draw(seed, buckets.size());
  for (uint64_t i = 0; i < edges.edge_count(); ++i) ++buckets[draw()].edges;
  uint64_t offset = 0, edges_max = 0;
  for (Bucket& bucket : buckets) {
    bucket.offset = offset;
    offset += RoundUp(bucket.edges * sizeof(NodePair), kPageBytes);
    edges_max = std::max(edges_max, bucket.edges);
  }
  QUARRY_TRY(const std::unique_ptr<EdgeStreamWriter> writer, EdgeStreamWriter::Create(context));
  QUARRY_RETURN_IF_ERROR(FillBuckets(edges, seed, context, writer->file_, buckets));

  // Each bucket is shuffled and written over those before it, and never over one that has yet to be read: its
  // edges end no later in the file than its own pages do.
  const uint64_t buffer_bytes =
      std::max<uint64_t>(RoundUp(edges_max * sizeof(NodePair), kPageBytes), kPageBytes);
  QUARRY_TRY(const auto reservation,
             context.budget.Reserve(IoBuffer::MappedBytes(buffer_bytes), "shuffling edges"));
  QUARRY_TRY(const IoBuffer buffer, IoBuffer::Allocate(buffer_bytes));
  for (uint64_t b = 0; b < buckets.size(); ++b) {
    const Bucket& bucket = buckets[b];
    if (bucket.edges == 0) continue;
    const std::span<std::byte> bytes =
        buffer.span().first(RoundUp(bucket.edges * sizeof(NodePair), kPageBytes));
    QUARRY_RETURN_IF_ERROR(context.backend.ReadAt(writer->file_, bucket.offset, bytes));
    const std::span<NodePair> shuffled(reinterpret_cast<NodePair*>(bytes.data()), bucket.edges);
    Rng rng(MixSeed(seed, 1, b));
    for (size_t i = shuffled.size(); i > 1; --i) std::swap(shuffled[i - 1], shuffled[rng.Below(i)]);
    QUARRY_RETURN_IF_ERROR(writer->Append(shuffled));
    QUARRY_RETURN_IF_ERROR(context.Report("shuffling buckets", b + 1, buckets.size()));
  }
  return writer->Finish(edges.node_count());
}

}  // namespace quarry
