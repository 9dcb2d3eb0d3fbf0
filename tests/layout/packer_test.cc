#include "packer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <set>

#include "quarry/base/random.h"
#include "quarry/base/units.h"
#include "quarry/format/checksum.h"
#include "support/fault_backend.h"
#include "support/status_matchers.h"
#include "support/temporary_folder.h"
#include "support/unsynced_backend.h"

namespace quarry {
namespace {

using testing::HasSubstr;

constexpr DatabaseId kId{std::byte{4}};
constexpr uint64_t kSectionOffset = 3 * kPageBytes;
constexpr std::byte kUntouchedByte{0xee};
constexpr uint32_t kUntouchedChecksum = 0xabcdef01;

struct TableShape {
  ElementType type = ElementType::kFloat32;
  uint64_t dim = 128;
  uint64_t rows = 20'000;
};

// A feature table of noise, and its rows.
class NoiseTable {
 public:
  NoiseTable(IoBackend& backend, const std::string& folder, const TableShape& shape) {
    geometry_ = std::move(FeatureGeometry::Make(shape.type, shape.dim, shape.rows)).value();
    rows_.resize(geometry_.row_count * geometry_.row_bytes);
    for (size_t at = 0; at < rows_.size(); at += 8) {
      const uint64_t word = Mix64(at);
      std::memcpy(rows_.data() + at, &word, std::min<size_t>(8, rows_.size() - at));
    }
    TableRecord record{.name = "feature",
                       .file = "feature.qft",
                       .generation = 1,
                       .element_type = shape.type,
                       .row_count = shape.rows,
                       .dim = shape.dim};
    auto writer = FeatureTableWriter::Create(backend, folder + "/" + record.file, geometry_, kId, 1);
    EXPECT_OK(writer);
    EXPECT_OK((*writer)->Append(rows_));
    record.file_bytes = *(*writer)->Finish();
    auto table = FeatureTable::Open(backend, folder, record, kId);
    EXPECT_OK(table);
    table_ = std::move(table).value();
  }
  const FeatureTable& table() const { return *table_; }
  const FeatureGeometry& geometry() const { return geometry_; }
  std::span<const std::byte> Row(NodeId node) const {
    return std::span(rows_).subspan(node * geometry_.row_bytes, geometry_.row_bytes);
  }

 private:
  FeatureGeometry geometry_;
  std::vector<std::byte> rows_;
  std::unique_ptr<FeatureTable> table_;
};

// Streams as a layout has them: an image, segments whose runs share pages, and chunks behind pages that are
// not the packer's.
class StreamMaker {
 public:
  StreamMaker(const FeatureGeometry& geometry, uint64_t stride, uint64_t seed)
      : geometry_(geometry), stride_(stride), rng_(seed) {}

  void Image(uint64_t rows) {
    NewRecord();
    AddStream(Draw(rows));
    EndRegion();
  }
  void Segment(std::vector<uint64_t> runs) {
    NewRecord();
    for (const uint64_t rows : runs) AddStream(Draw(rows));
    EndRegion();
  }
  void Chunk(uint64_t rows) {
    offset_ += kPageBytes * (1 + rng_.Below(3));  // of the block
    Image(rows);
  }
  const std::vector<std::vector<NodeId>>& records() const { return records_; }
  const std::vector<PackStream>& streams() const { return streams_; }
  uint64_t bytes() const { return offset_; }

 private:
  void NewRecord() { records_.emplace_back(); }
  std::vector<NodeId> Draw(uint64_t rows) {
    rows = std::min(rows, geometry_.row_count);
    std::vector<NodeId> nodes;
    if (rows >= geometry_.row_count) {
      for (NodeId node = 0; node < geometry_.row_count; ++node) nodes.push_back(node);
      return nodes;
    }
    std::set<NodeId> drawn;
    while (drawn.size() < rows) drawn.insert(static_cast<NodeId>(rng_.Below(geometry_.row_count)));
    return {drawn.begin(), drawn.end()};
  }
  void AddStream(const std::vector<NodeId>& nodes) {
    std::vector<NodeId>& record = records_.back();
    streams_.push_back({records_.size() - 1, record.size(), nodes.size(), offset_});
    record.insert(record.end(), nodes.begin(), nodes.end());
    offset_ += nodes.size() * stride_;
  }
  void EndRegion() { offset_ = RoundUp(offset_, kPageBytes); }

  const FeatureGeometry geometry_;
  const uint64_t stride_;
  Rng rng_;
  std::vector<std::vector<NodeId>> records_;
  std::vector<PackStream> streams_;
  uint64_t offset_ = 0;
};

// What a writer of single rows leaves: pages that it touched, zero where it did not.
struct Naive {
  Naive(const NoiseTable& table, const StreamMaker& made, uint64_t stride)
      : bytes(made.bytes(), kUntouchedByte) {
    for (const PackStream& stream : made.streams()) {
      for (uint64_t at = RoundDown(stream.offset, kPageBytes); at < stream.offset + stream.count * stride;
           at += kPageBytes) {
        if (stream.count > 0 && pages.insert(at / kPageBytes).second) {
          std::memset(bytes.data() + at, 0, kPageBytes);
        }
      }
    }
    for (const PackStream& stream : made.streams()) {
      for (uint64_t i = 0; i < stream.count; ++i) {
        const NodeId node = made.records()[stream.record][stream.first + i];
        std::ranges::copy(table.Row(node), bytes.data() + stream.offset + i * stride);
      }
    }
  }
  std::vector<std::byte> bytes;
  std::set<uint64_t> pages;
};

class PackerTest : public testing::Test {
 protected:
  // A file whose section is full of what must stay, with the streams' ids beside it.
  struct Target {
    File file;
    std::unique_ptr<RecordFile> ids;
    std::vector<uint32_t> checksums;
  };
  Target MakeTarget(const StreamMaker& made) {
    Target target;
    const std::string name = folder_ / ("target" + std::to_string(serial_++));
    target.file = std::move(backend_.Open(name, OpenMode::kCreateDirect)).value();
    IoBuffer filler = std::move(IoBuffer::Allocate(kSectionOffset + made.bytes())).value();
    std::ranges::fill(filler.span(), kUntouchedByte);
    EXPECT_OK(backend_.WriteAt(target.file, 0, filler.span().first(kSectionOffset + made.bytes())));
    auto writer = RecordWriter::Create(backend_, name + ".ids");
    EXPECT_OK(writer);
    for (const std::vector<NodeId>& nodes : made.records()) {
      EXPECT_OK((*writer)->Append({BytesOf(nodes)}));
    }
    const uint64_t bytes = (*writer)->Finish(kId, 1).value();
    target.ids = std::move(RecordFile::Open(backend_, name + ".ids", kId, 1, bytes)).value();
    target.checksums.assign(made.bytes() / kPageBytes, kUntouchedChecksum);
    return target;
  }
  static PackTarget TargetOf(const StreamMaker& made, Target& target) {
    return {.ids = target.ids.get(),
            .streams = made.streams(),
            .file = &target.file,
            .section_offset = kSectionOffset,
            .checksums = target.checksums};
  }
  Result<PackStats> Pack(const NoiseTable& table, const StreamMaker& made, uint64_t stride, unsigned threads,
                         Target& target, const std::function<Status(uint64_t, uint64_t)>& progress = {}) {
    const PackTarget to = TargetOf(made, target);
    return PackRows(
        backend_, table.table(), {&to, 1},
        {.row_stride = stride,
         .memory_bytes = PackBytesMin(table.table().geometry().row_bytes, made.streams().size(), threads),
         .threads = threads},
        progress);
  }
  void ExpectAsNaive(const Target& target, const Naive& naive) {
    std::ifstream in(target.file.path(), std::ios::binary);
    in.seekg(kSectionOffset);
    std::vector<std::byte> got(naive.bytes.size());
    in.read(reinterpret_cast<char*>(got.data()), static_cast<std::streamsize>(got.size()));
    ASSERT_TRUE(in.good());
    for (uint64_t page = 0; page < target.checksums.size(); ++page) {
      const auto bytes = std::span(got).subspan(page * kPageBytes, kPageBytes);
      ASSERT_EQ(std::memcmp(bytes.data(), naive.bytes.data() + page * kPageBytes, kPageBytes), 0)
          << "page " << page;
      ASSERT_EQ(target.checksums[page],
                naive.pages.contains(page) ? CellChecksum(bytes, page) : kUntouchedChecksum)
          << "page " << page;
    }
  }

  const TemporaryFolder folder_{"packer"};
  testing_util::UnsyncedBackend unsynced_;
  FaultBackend backend_{unsynced_};
  int serial_ = 0;
};

StreamMaker LayoutLike(const FeatureGeometry& geometry, uint64_t stride, uint64_t seed) {
  StreamMaker made(geometry, stride, seed);
  const uint64_t rows = geometry.row_count;
  made.Image(rows / 7);
  made.Segment({1, 0, 2, 0, 0, rows / 20, 3, 1, 1, rows / 9, 0});
  made.Segment({0, rows / 30, 5});
  made.Image(0);
  for (const uint64_t count : {rows / 11, uint64_t{1}, uint64_t{0}, rows / 4}) made.Chunk(count);
  return made;
}

TEST_F(PackerTest, WritesWhatANaiveWriterWrites) {
  struct Case {
    TableShape shape;
    std::vector<unsigned> threads;
  };
  const Case cases[] = {
      {{.dim = 128, .rows = 18'000}, {1, 3}},  // rows that divide pages, 2 partitions
      {{.type = ElementType::kFloat16, .dim = 333, .rows = 26'000},
       {3}},  // 666 bytes at a stride of 668, 3 of them
      {{.type = ElementType::kUint8, .dim = 5, .rows = 20'000}, {1, 3}},  // 5 bytes at a stride of 8
      {{.dim = 3, .rows = 20'000}, {3}},                                  // 12 bytes, which divide no page
      {{.dim = 2000, .rows = 1'200}, {2}},                                // rows of two pages
      {{.type = ElementType::kInt64, .dim = 600'000, .rows = 4}, {2}},    // a row exceeds the write buffer
  };
  for (const auto& [shape, thread_counts] : cases) {
    const NoiseTable table(backend_, folder_.path(), shape);
    const uint64_t row_bytes = table.geometry().row_bytes;
    const uint64_t stride = RoundUp(row_bytes, 4);
    for (const unsigned threads : thread_counts) {
      const uint64_t seed = 20 + threads;
      SCOPED_TRACE(testing::Message()
                   << row_bytes << " bytes a row, " << threads << " threads, seed " << seed);
      const StreamMaker made = LayoutLike(table.geometry(), stride, seed);
      const Naive naive(table, made, stride);
      Target target = MakeTarget(made);
      std::vector<uint64_t> reported;
      const auto stats = Pack(table, made, stride, threads, target, [&](uint64_t rows, uint64_t total) {
        EXPECT_EQ(total, shape.rows);
        reported.push_back(rows);
        return Status::Ok();
      });
      ASSERT_OK(stats);
      ExpectAsNaive(target, naive);
      EXPECT_EQ(stats->bytes_written, naive.pages.size() * kPageBytes) << "each page once";
      EXPECT_EQ(stats->partitions, CeilDiv(shape.rows, std::max<uint64_t>(1, 8 * kMiB / row_bytes)));
      ASSERT_EQ(reported.size(), stats->partitions);
      EXPECT_EQ(reported.back(), shape.rows);
    }
    std::filesystem::remove(folder_ / "feature.qft");
  }
}

// One pass over the table fills each file as a pass of its own would.
TEST_F(PackerTest, SeveralFilesAreWrittenInOnePass) {
  const NoiseTable table(backend_, folder_.path(), {.dim = 129, .rows = 18'000});
  const uint64_t stride = table.geometry().row_bytes;
  std::vector<StreamMaker> made;
  std::vector<Target> targets;
  std::vector<PackTarget> to;
  uint64_t streams = 0, pages = 0;
  for (uint64_t seed = 60; seed < 63; ++seed) {
    made.push_back(seed == 61 ? StreamMaker(table.geometry(), stride, seed)
                              : LayoutLike(table.geometry(), stride, seed));
    targets.push_back(MakeTarget(made.back()));
    streams += made.back().streams().size();
    pages += Naive(table, made.back(), stride).pages.size();
  }
  for (size_t i = 0; i < made.size(); ++i) to.push_back(TargetOf(made[i], targets[i]));
  const auto stats =
      PackRows(backend_, table.table(), to,
               {.row_stride = stride, .memory_bytes = PackBytesMin(stride, streams, 2), .threads = 2}, {});
  ASSERT_OK(stats);
  EXPECT_EQ(stats->bytes_written, pages * kPageBytes);
  EXPECT_LT(stats->bytes_read, 2 * 18'000 * stride) << "the table is read once";
  for (size_t i = 0; i < made.size(); ++i) {
    SCOPED_TRACE(i);
    ExpectAsNaive(targets[i], Naive(table, made[i], stride));
  }
}

// A stream longer than the buffer that it is written through, on its own pages and on shared ones.
TEST_F(PackerTest, LongStreamsAreWrittenPieceByPiece) {
  const NoiseTable table(backend_, folder_.path(), {.dim = 129, .rows = 24'000});
  const uint64_t stride = table.geometry().row_bytes;
  StreamMaker made(table.geometry(), stride, 31);
  made.Image(24'000);
  made.Segment({1, 20'000, 1, 10'000});
  const Naive naive(table, made, stride);
  Target target = MakeTarget(made);
  const auto stats = Pack(table, made, stride, 2, target);
  ASSERT_OK(stats);
  EXPECT_EQ(stats->partitions, 2u);
  ExpectAsNaive(target, naive);
}

TEST_F(PackerTest, NoStreamsAndOnlyEmptyOnesWriteNothing) {
  const NoiseTable table(backend_, folder_.path(), {.rows = 100});
  StreamMaker none(table.geometry(), 512, 1);
  StreamMaker empty(table.geometry(), 512, 1);
  empty.Image(0);
  empty.Segment({0, 0, 0});
  empty.Chunk(0);
  for (const StreamMaker* made : {&none, &empty}) {
    Target target = MakeTarget(*made);
    const auto stats = Pack(table, *made, 512, 2, target);
    ASSERT_OK(stats);
    EXPECT_EQ(stats->bytes_written, 0u);
    ExpectAsNaive(target, Naive(table, *made, 512));
  }
}

TEST_F(PackerTest, CancellingAndEveryFaultOfTheDiskReachTheCaller) {
  const NoiseTable table(backend_, folder_.path(), {.rows = 20'000});
  const StreamMaker made = LayoutLike(table.geometry(), 512, 41);
  Target target = MakeTarget(made);
  EXPECT_EQ(
      Pack(table, made, 512, 2, target, [](uint64_t, uint64_t) { return Status(Code::kCancelled, "stop"); })
          .status()
          .code(),
      Code::kCancelled);
  backend_.SetPlans({});
  ASSERT_OK(Pack(table, made, 512, 2, target));
  const uint64_t reads = backend_.count(FaultKind::kRead), writes = backend_.count(FaultKind::kWrite);
  ASSERT_GT(reads, 20u);
  ASSERT_GT(writes, 10u);
  const auto strike = [&](FaultKind kind, uint64_t at, int error) {
    backend_.SetPlans({{.kind = kind, .at = at, .error = error}});
    const Status status = Pack(table, made, 512, 2, target).status();
    EXPECT_EQ(backend_.strikes(), 1u);
    return status.code();
  };
  for (uint64_t at = 1; at <= writes; at += 1 + writes / 12) {
    EXPECT_EQ(strike(FaultKind::kWrite, at, ENOSPC), Code::kNoSpace) << "write " << at;
  }
  for (uint64_t at = 1; at <= reads; at += 1 + reads / 12) {
    EXPECT_EQ(strike(FaultKind::kRead, at, EIO), Code::kIoError) << "read " << at;
  }
  backend_.SetPlans({});
  ASSERT_OK(Pack(table, made, 512, 2, target));
  ExpectAsNaive(target, Naive(table, made, 512));
}

TEST_F(PackerTest, ADamagedRowIsNamedAndNotPacked) {
  const NoiseTable table(backend_, folder_.path(), {.rows = 20'000});
  const StreamMaker made = LayoutLike(table.geometry(), 512, 51);
  Target target = MakeTarget(made);
  const uint64_t offset = table.geometry().RowOffset(19'000) + 77;
  {
    std::fstream file(table.table().file().path(), std::ios::in | std::ios::out | std::ios::binary);
    file.seekg(static_cast<std::streamoff>(offset));
    const int byte = file.get();
    file.seekp(static_cast<std::streamoff>(offset));
    file.put(static_cast<char>(byte ^ 1));
  }
  const Status status = Pack(table, made, 512, 2, target).status();
  EXPECT_EQ(status.code(), Code::kCorruption);
  EXPECT_THAT(std::string(status.message()), HasSubstr("row 19000"));
}

}  // namespace
}  // namespace quarry
