#include "packer.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <utility>

#include "quarry/base/process.h"
#include "quarry/base/thread.h"
#include "quarry/base/trace.h"
#include "quarry/base/units.h"
#include "quarry/cache/gather.h"
#include "quarry/format/checksum.h"

namespace quarry {
namespace {

constexpr uint64_t kPartitionBytesMax = 512 * kMiB;
constexpr uint64_t kPartitionBytesMin = 8 * kMiB;
constexpr uint64_t kWriteBytes = 4 * kMiB;
constexpr unsigned kWritersPerThread = 2;  // one gathers while the other's write is under way
constexpr uint64_t kIdsAtATime = 64 * 1024;
constexpr uint64_t kReadBufferBytes = 16 * kMiB;

// What a thread packs with.
struct Workspace {
  IoBuffer ids;
  IoBuffer rows;  // to be written: kWriteBytes and a page
  std::vector<uint32_t> slots;
};

// Bytes of a page that streams share, or that a stream does not fill.
struct Fragment {
  const PackTarget* target = nullptr;
  uint64_t offset = 0;  // in its section
  std::vector<std::byte> bytes;
};

// How far a stream has come.
struct Progress {
  uint64_t ids_done = 0;
  uint64_t page_offset = 0;     // start of the current page
  uint64_t gap = 0;             // bytes before the stream's first in that page; 0 after the first page
  std::vector<std::byte> tail;  // the page at hand so far, gap included: less than a page
  std::vector<Fragment> fragments;
};

class StreamPacker {
 public:
  StreamPacker(IoBackend& backend, std::span<const PackSource> sources, std::span<const PackTarget> targets,
               const PackOptions& options)
      : backend_(backend),
        sources_(sources),
        options_(options),
        workspaces_(options.threads * kWritersPerThread) {
    for (const PackTarget& target : targets) {
      for (const PackStream& stream : target.streams) {
        const uint64_t gap = stream.offset % kPageBytes;
        streams_.push_back({&target, &stream});
        progress_.push_back({.page_offset = stream.offset - gap,
                             .gap = gap,
                             .tail = std::vector<std::byte>(gap),
                             .fragments = {}});
      }
    }
    for (const PackSource& source : sources) {
      touched_.push_back(source.newer != nullptr ? source.newer->TouchedRows() : std::vector<uint64_t>());
    }
  }

  Result<PackStats> Run(const std::function<Status(uint64_t, uint64_t)>& progress);

 private:
  // Nodes that follow each other, and so do their rows in one table; null: they have none.
  struct Partition {
    const PackSource* source = nullptr;
    uint64_t first = 0, end = 0, first_row = 0;
    uint64_t bytes() const {
      return source == nullptr ? 0 : (end - first) * source->table->geometry().row_bytes;
    }
  };
  uint64_t PartitionBytes() const;
  std::vector<Partition> Partitions() const;
  uint64_t write_bytes() const {
    uint64_t bytes = kWriteBytes;
    for (const PackSource& source : sources_) bytes = std::max(bytes, source.row_stride);
    return bytes;
  }
  Status ReadPartition(const Partition& partition, IoBuffer& rows);
  Status PackPartition(const IoBuffer& rows, const Partition& partition);
  Status OnThreads(const std::function<Status(Workspace&, size_t stream)>& work);
  Status PackStreamRows(Workspace& space, size_t stream, const std::byte* rows, const Partition& partition);
  Status Flush(Workspace& space, size_t stream, uint64_t bytes);
  Status WritePages(const PackTarget& target, std::span<const std::byte> pages, uint64_t offset);
  Status WriteFragments();

  IoBackend& backend_;
  const std::span<const PackSource> sources_;
  const PackOptions options_;
  struct TargetStream {
    const PackTarget* target;
    const PackStream* stream;
  };
  std::vector<TargetStream> streams_;           // of all targets
  std::vector<std::vector<uint64_t>> touched_;  // by source: rows that are newer
  std::vector<Progress> progress_;
  std::vector<Workspace> workspaces_;
  PackStats stats_;
  std::atomic<uint64_t> bytes_written_{0};
};

// So many that a stream's rows of a partition make a large write, and no more: making memory costs time too.
uint64_t StreamPacker::PartitionBytes() const {
  uint64_t table_rows = 0, table_bytes = 0, strides = 0;
  for (const PackSource& source : sources_) {
    const FeatureGeometry& geometry = source.table->geometry();
    table_rows += geometry.row_count;
    table_bytes += geometry.row_count * geometry.row_bytes;
    strides += geometry.row_count * source.row_stride;
  }
  const uint64_t fixed = workspaces_.size() * (kWriteBytes + kPageBytes + kIdsAtATime * 8) +
                         kReadBufferBytes + streams_.size() * kPageBytes;
  const uint64_t left = options_.memory_bytes > fixed ? options_.memory_bytes - fixed : 0;
  uint64_t packed_rows = 1;
  for (const TargetStream& each : streams_) packed_rows += each.stream->count;
  const double runs = static_cast<double>(packed_rows) * static_cast<double>(strides) /
                      static_cast<double>(std::max<uint64_t>(1, table_rows)) /
                      static_cast<double>(kWriteBytes);
  const double share =
      0.75 * static_cast<double>(streams_.size()) / runs;  // of the tables; runs differ in length
  const auto wanted = static_cast<uint64_t>(std::min(1.0, share) * static_cast<double>(table_bytes));
  return std::max(std::min({left / 2, wanted, kPartitionBytesMax}), kPartitionBytesMin);
}

// All nodes, ascending.
std::vector<StreamPacker::Partition> StreamPacker::Partitions() const {
  const uint64_t partition_bytes = PartitionBytes();
  std::vector<Partition> ranges;
  for (const PackSource& source : sources_) {
    if (source.nodes.empty()) ranges.push_back({&source, 0, source.table->geometry().row_count, 0});
    for (const NodeTypes::Range& nodes : source.nodes) {
      ranges.push_back({&source, nodes.first, nodes.end, nodes.row});
    }
  }
  std::ranges::sort(ranges, {}, &Partition::first);
  std::vector<Partition> partitions;
  uint64_t end = 0;
  for (const Partition& range : ranges) {
    if (range.first > end) partitions.push_back({nullptr, end, range.first, 0});
    const uint64_t rows = std::max<uint64_t>(1, partition_bytes / range.source->table->geometry().row_bytes);
    for (uint64_t first = range.first; first < range.end; first += rows) {
      partitions.push_back(
          {range.source, first, std::min(first + rows, range.end), range.first_row + (first - range.first)});
    }
    end = range.end;
  }
  if (!sources_.front().nodes.empty()) partitions.push_back({nullptr, end, ~uint64_t{0}, 0});
  return partitions;
}

Result<PackStats> StreamPacker::Run(const std::function<Status(uint64_t, uint64_t)>& progress) {
  const double start = MonotonicSeconds();
  const std::vector<Partition> partitions = Partitions();
  uint64_t buffer_bytes = 1, rows_done = 0, row_count = 0;
  for (const Partition& each : partitions) {
    buffer_bytes = std::max(buffer_bytes, each.bytes());
    if (each.source != nullptr) row_count += each.end - each.first;
  }
  for (Workspace& space : workspaces_) {
    QUARRY_TRY(space.rows, IoBuffer::Allocate(write_bytes() + kPageBytes));
  }
  IoBuffer buffers[2];
  for (IoBuffer& buffer : buffers) {
    QUARRY_TRY(buffer, IoBuffer::Allocate(buffer_bytes));
  }
  // The next partition is read while this one is written.
  const auto read_beside = [&](const Partition& partition, size_t which) {
    return BackgroundTask<Status>::Start("read a partition", [this, &partition, &buffers, which] {
      return ReadPartition(partition, buffers[which]);
    });
  };
  BackgroundTask<Status> reading = read_beside(partitions[0], 0);
  for (size_t i = 0; i < partitions.size(); ++i) {
    const Partition& partition = partitions[i];
    QUARRY_RETURN_IF_ERROR(reading.Get());
    const size_t which = i % 2;
    if (i + 1 < partitions.size()) reading = read_beside(partitions[i + 1], 1 - which);
    QUARRY_RETURN_IF_ERROR(PackPartition(buffers[which], partition));
    if (partition.source == nullptr) continue;
    ++stats_.partitions;
    rows_done += partition.end - partition.first;
    if (progress) QUARRY_RETURN_IF_ERROR(progress(rows_done, row_count));
  }
  QUARRY_RETURN_IF_ERROR(WriteFragments());
  stats_.bytes_written = bytes_written_;
  stats_.seconds = MonotonicSeconds() - start;
  return stats_;
}

Status StreamPacker::ReadPartition(const Partition& partition, IoBuffer& rows) {
  if (partition.source == nullptr) return Status::Ok();
  const ScopedSpan span("read a partition", partition.first);
  const double start = MonotonicSeconds();
  const FeatureTable& table = *partition.source->table;
  const uint64_t first = partition.first_row, count = partition.end - partition.first;
  const std::span<std::byte> out = rows.span().first(partition.bytes());
  QUARRY_RETURN_IF_ERROR(table.ReadRows(backend_, first, count, out, kReadBufferBytes));
  const std::vector<uint64_t>& touched = touched_[static_cast<size_t>(partition.source - sources_.data())];
  if (!touched.empty()) {
    QUARRY_RETURN_IF_ERROR(
        FoldRows(*partition.source->newer, touched, first, table.geometry().row_bytes, out));
  }
  stats_.read_seconds += MonotonicSeconds() - start;
  stats_.bytes_read += table.geometry().RowOffset(first + count - 1) - table.geometry().RowOffset(first) +
                       table.geometry().row_bytes;
  return Status::Ok();
}

// Runs `work` for every stream, shared out among the threads as they come. The first error is returned.
Status StreamPacker::OnThreads(const std::function<Status(Workspace&, size_t stream)>& work) {
  std::atomic<size_t> next{0};
  return RunOnThreads("pack", static_cast<unsigned>(workspaces_.size()), [&](unsigned thread) {
    Status status;
    for (size_t stream = next++; stream < streams_.size() && status.ok(); stream = next++) {
      status = work(workspaces_[thread], stream);
    }
    if (!status.ok()) next = streams_.size();
    return status;
  });
}

Status StreamPacker::PackPartition(const IoBuffer& rows, const Partition& partition) {
  const ScopedSpan span("pack a partition", partition.first);
  return OnThreads(
      [&](Workspace& space, size_t stream) { return PackStreamRows(space, stream, rows.data(), partition); });
}

// Appends the rows of the partition's nodes, which lie at `rows`, to a stream.
Status StreamPacker::PackStreamRows(Workspace& space, size_t stream, const std::byte* rows,
                                    const Partition& partition) {
  const RecordFile& ids = *streams_[stream].target->ids;
  const PackStream& target = *streams_[stream].stream;
  Progress& progress = progress_[stream];
  const bool has_rows = partition.source != nullptr;
  const uint64_t row_bytes = has_rows ? partition.source->table->geometry().row_bytes : 0;
  const uint64_t stride = has_rows ? partition.source->row_stride : 0;
  std::byte* const out = space.rows.data();
  uint64_t filled = progress.tail.size();
  std::ranges::copy(progress.tail, out);
  while (progress.ids_done < target.count) {
    const uint64_t wanted =
        std::min({kIdsAtATime, target.count - progress.ids_done,
                  has_rows ? std::max<uint64_t>(1, (write_bytes() - filled) / stride) : kIdsAtATime});
    QUARRY_TRY(const std::span<const std::byte> bytes,
               ids.Read(target.record, (target.first + progress.ids_done) * sizeof(NodeId),
                        wanted * sizeof(NodeId), space.ids));
    const std::span<const NodeId> nodes(reinterpret_cast<const NodeId*>(bytes.data()), wanted);
    space.slots.clear();
    for (const NodeId node : nodes) {
      if (node >= partition.end) break;
      space.slots.push_back(static_cast<uint32_t>(node - partition.first));
    }
    const uint64_t taken = space.slots.size();
    if (has_rows && stride == row_bytes) {
      GatherRows({rows, row_bytes, row_bytes}, space.slots, std::span(out + filled, taken * stride));
    } else {
      for (uint64_t i = 0; has_rows && i < taken; ++i) {
        std::byte* const row = out + filled + i * stride;
        std::memcpy(row, rows + space.slots[i] * row_bytes, row_bytes);
        std::memset(row + row_bytes, 0, stride - row_bytes);
      }
    }
    filled += taken * stride;
    progress.ids_done += taken;
    if (taken < wanted) break;
    if (filled + stride > write_bytes()) {
      QUARRY_RETURN_IF_ERROR(Flush(space, stream, filled));
      filled = progress.tail.size();
      std::ranges::copy(progress.tail, out);
    }
  }
  return Flush(space, stream, filled);
}

// Writes the whole pages of the `bytes` at space.rows, which begin at the stream's page at hand, and keeps
// the rest as its tail.
Status StreamPacker::Flush(Workspace& space, size_t stream, uint64_t bytes) {
  Progress& progress = progress_[stream];
  const std::span<const std::byte> out = space.rows.span().first(bytes);
  const uint64_t whole = RoundDown(bytes, kPageBytes);
  uint64_t begin = 0;
  if (whole > 0 && progress.gap > 0) {  // the first page is shared with the stream before
    const std::span<const std::byte> part = out.subspan(progress.gap, kPageBytes - progress.gap);
    progress.fragments.push_back(
        {streams_[stream].target, progress.page_offset + progress.gap, {part.begin(), part.end()}});
    progress.gap = 0;
    begin = kPageBytes;
  }
  QUARRY_RETURN_IF_ERROR(
      WritePages(*streams_[stream].target, out.subspan(begin, whole - begin), progress.page_offset + begin));
  progress.page_offset += whole;
  progress.tail.assign(out.begin() + static_cast<ptrdiff_t>(whole), out.end());
  return Status::Ok();
}

Status StreamPacker::WritePages(const PackTarget& target, std::span<const std::byte> pages, uint64_t offset) {
  for (uint64_t at = 0; at < pages.size(); at += kPageBytes) {
    const uint64_t page = (offset + at) / kPageBytes;
    target.checksums[page] = CellChecksum(pages.subspan(at, kPageBytes), page);
  }
  bytes_written_ += pages.size();
  return pages.empty() ? Status::Ok() : backend_.WriteAt(*target.file, target.section_offset + offset, pages);
}

// The pages that no stream could write alone, and the ends of all streams.
Status StreamPacker::WriteFragments() {
  std::vector<Fragment> fragments;
  for (size_t i = 0; i < progress_.size(); ++i) {
    Progress& progress = progress_[i];
    for (Fragment& fragment : progress.fragments) fragments.push_back(std::move(fragment));
    if (progress.tail.size() == progress.gap) continue;
    fragments.push_back(
        {streams_[i].target,
         progress.page_offset + progress.gap,
         {progress.tail.begin() + static_cast<ptrdiff_t>(progress.gap), progress.tail.end()}});
  }
  // Targets are elements of one array.
  std::ranges::sort(fragments, {}, [](const Fragment& f) { return std::pair(f.target, f.offset); });
  const std::span<std::byte> page = workspaces_[0].rows.span().first(kPageBytes);
  for (size_t i = 0; i < fragments.size();) {
    const PackTarget* const target = fragments[i].target;
    const uint64_t offset = RoundDown(fragments[i].offset, kPageBytes);
    std::memset(page.data(), 0, kPageBytes);
    for (; i < fragments.size() && fragments[i].target == target && fragments[i].offset < offset + kPageBytes;
         ++i) {
      std::ranges::copy(fragments[i].bytes, page.data() + (fragments[i].offset - offset));
    }
    QUARRY_RETURN_IF_ERROR(WritePages(*target, page, offset));
  }
  return Status::Ok();
}

}  // namespace

uint64_t PackBytesMin(uint64_t row_bytes, uint64_t streams, unsigned threads) {
  return 2 * std::max(kPartitionBytesMin, row_bytes) + kReadBufferBytes +
         threads * kWritersPerThread * (kWriteBytes + kPageBytes + kIdsAtATime * 8) + streams * kPageBytes;
}

Result<PackStats> PackRows(IoBackend& backend, std::span<const PackSource> sources,
                           std::span<const PackTarget> targets, const PackOptions& options,
                           const std::function<Status(uint64_t rows, uint64_t total)>& progress) {
  StreamPacker packing(backend, sources, targets, options);
  return packing.Run(progress);
}

}  // namespace quarry
