// EdgeStream: edges in a scratch file, which a partitioner reads in the order in which they lie there; and
// the external shuffle that makes that order random. GREM needs it: a chunk of its edges must be a sample of
// all of them (Waleffe §4.2), and a topology has them sorted.
//
// A stream and a writer each belong to one thread. The file has no name and goes with its stream.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "quarry/base/budget.h"
#include "quarry/base/status.h"
#include "quarry/io/backend.h"
#include "quarry/io/buffer.h"
#include "quarry/partition/edge_source.h"
#include "quarry/storage/scanner.h"

namespace quarry {

class EdgeStream final : public EdgeSource {
 public:
  // Memory of a stream between Rewind and Close.
  static uint64_t ReadBytes();

  uint64_t node_count() const override { return node_count_; }
  uint64_t edge_count() const override { return edge_count_; }
  // Reserves ReadBytes() where the stream is not open for reading. kOutOfBudget.
  Status Rewind() override;
  Result<size_t> Read(std::span<NodePair> out) override;
  // Gives the memory of reading back until the next Rewind.
  void Close();

 private:
  friend class EdgeStreamWriter;
  EdgeStream(IoBackend& backend, MemoryBudget& budget, File file, uint64_t node_count, uint64_t edge_count);

  IoBackend& backend_;
  MemoryBudget& budget_;
  const File file_;
  const uint64_t node_count_;
  const uint64_t edge_count_;
  uint64_t next_ = 0;
  MemoryBudget::Reservation reservation_;
  std::unique_ptr<FileScanner> scanner_;
  std::span<const NodePair> piece_;
};

// Writes a stream front to back by direct writes. After an error only its destructor may be called.
class EdgeStreamWriter {
 public:
  // Memory of an open writer.
  static uint64_t WriteBytes();

  // Reserves WriteBytes(). kOutOfBudget; kIoError and kNoSpace from the disk.
  static Result<std::unique_ptr<EdgeStreamWriter>> Create(const PartitionContext& context);
  Status Append(std::span<const NodePair> edges);
  // The ends of all edges are below node_count. The writer is of no use afterwards.
  Result<std::unique_ptr<EdgeStream>> Finish(uint64_t node_count);

 private:
  friend Result<std::unique_ptr<EdgeStream>> ShuffleEdges(EdgeSource&, uint64_t, const PartitionContext&);
  explicit EdgeStreamWriter(const PartitionContext& context)
      : backend_(context.backend), budget_(context.budget) {}
  Status Flush();

  IoBackend& backend_;
  MemoryBudget& budget_;
  MemoryBudget::Reservation reservation_;
  File file_;
  IoBuffer buffer_;
  uint64_t buffered_ = 0;  // edges in the buffer
  uint64_t flushed_ = 0;   // edges in the file
};

// The edges in a random order, every order as likely as any other as far as the generator goes.
//
// Edges are thrown into k buckets of a scratch file, each of which is then shuffled in memory, so the result
// depends on the edges' order and the seed alone, and not on the budget: k is a function of their number. So
// is the memory, about sqrt(512 KiB x edges) bytes for the larger of buckets' buffers and one bucket (7 MiB
// for 100 M edges, 256 MiB for 128 G), besides WriteBytes(); kOutOfBudget states it. Scratch: 8 bytes an
// edge, written twice and read once.
Result<std::unique_ptr<EdgeStream>> ShuffleEdges(EdgeSource& edges, uint64_t seed,
                                                 const PartitionContext& context);

}  // namespace quarry
