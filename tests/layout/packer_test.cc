#include "packer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
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
  template <typename Made>
  Target MakeTarget(const Made& made) {
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
  template <typename Made>
  static PackTarget TargetOf(const Made& made, Target& target) {
    return {.ids = target.ids.get(),
            .streams = made.streams(),
            .file = &target.file,
            .section_offset = kSectionOffset,
            .checksums = target.checksums};
  }
  Result<PackStats> Pack(const NoiseTable& table, const StreamMaker& made, uint64_t stride, unsigned threads,
                         Target& target, const std::function<Status(uint64_t, uint64_t)>& progress = {}) {
    const PackTarget to = TargetOf(made, target);
    const PackSource from{.table = &table.table(), .row_stride = stride, .nodes = {}};
    return PackRows(
        backend_, {&from, 1}, {&to, 1},
        {.memory_bytes = PackBytesMin(table.table().geometry().row_bytes, made.streams().size(), threads),
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
  const PackSource from{.table = &table.table(), .row_stride = stride, .nodes = {}};
  const auto stats = PackRows(backend_, {&from, 1}, to,
                              {.memory_bytes = PackBytesMin(stride, streams, 2), .threads = 2}, {});
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

// Chunks of nodes of two tables, whose ranges lie between each other, and of none.
struct MixedChunks {
  std::vector<std::vector<NodeId>> nodes;
  std::vector<PackStream> placed;
  uint64_t end = 0;
  const std::vector<std::vector<NodeId>>& records() const { return nodes; }
  const std::vector<PackStream>& streams() const { return placed; }
  uint64_t bytes() const { return end; }
};

TEST_F(PackerTest, RowsOfSeveralTablesFollowEachOtherByNode) {
  for (uint64_t seed = 71; seed < 75; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    Rng rng(seed);
    std::filesystem::create_directories(folder_ / fmt::format("a{}", seed));
    std::filesystem::create_directories(folder_ / fmt::format("b{}", seed));
    const NoiseTable tables[] = {
        {backend_, folder_ / fmt::format("a{}", seed), {.dim = 1 + rng.Below(1200), .rows = 9'000}},
        {backend_,
         folder_ / fmt::format("b{}", seed),
         {.type = ElementType::kFloat16, .dim = 1 + rng.Below(300), .rows = 12'000}}};
    const std::vector<NodeTypes::Range> ranges[] = {
        {{.first = 0, .end = 4'000, .row = 0}, {.first = 18'000, .end = 23'000, .row = 4'000}},
        {{.first = 4'000, .end = 16'000, .row = 0}}};
    const auto table_of = [&](NodeId node) {
      return node < 4'000 || node >= 18'000 ? 0 : node < 16'000 ? 1 : 2;
    };
    const auto stride_of = [&](NodeId node) {
      const int table = table_of(node);
      if (table == 2) return uint64_t{0};
      return RowStride(tables[table].geometry().element_type, tables[table].geometry().dim);
    };
    MixedChunks made;
    for (int chunk = 0; chunk < 5; ++chunk) {
      std::vector<NodeId>& nodes = made.nodes.emplace_back();
      uint64_t bytes = 0;
      for (NodeId node = 0; node < 23'000; ++node) {
        if (rng.Below(chunk == 0 ? 1 : 9) > 0) continue;
        nodes.push_back(node);
        bytes += stride_of(node);
      }
      made.placed.push_back({static_cast<uint64_t>(chunk), 0, nodes.size(), made.end});
      made.end = RoundUp(made.end + bytes, kPageBytes);
    }
    std::vector<std::byte> expected(made.end);
    for (const PackStream& stream : made.placed) {
      uint64_t at = stream.offset;
      for (const NodeId node : made.nodes[stream.record]) {
        const int table = table_of(node);
        if (table == 2) continue;
        for (const NodeTypes::Range& range : ranges[table]) {
          if (node < range.first || node >= range.end) continue;
          std::ranges::copy(tables[table].Row(static_cast<NodeId>(range.RowOf(node))), expected.data() + at);
        }
        at += stride_of(node);
      }
    }
    Target target = MakeTarget(made);
    const PackTarget to = TargetOf(made, target);
    std::vector<PackSource> from;
    for (int table = 0; table < 2; ++table) {
      from.push_back({.table = &tables[table].table(),
                      .row_stride = stride_of(ranges[table][0].first),
                      .nodes = ranges[table]});
    }
    const uint64_t longest = std::max(from[0].row_stride, from[1].row_stride);
    ASSERT_OK(PackRows(backend_, from, {&to, 1},
                       {.memory_bytes = PackBytesMin(longest, made.placed.size(), 2), .threads = 2}, {}));
    std::ifstream in(target.file.path(), std::ios::binary);
    in.seekg(kSectionOffset);
    std::vector<std::byte> got(made.end);
    in.read(reinterpret_cast<char*>(got.data()), static_cast<std::streamsize>(got.size()));
    EXPECT_TRUE(got == expected);
    for (uint64_t page = 0; page < target.checksums.size(); ++page) {
      ASSERT_EQ(target.checksums[page],
                CellChecksum(std::span(got).subspan(page * kPageBytes, kPageBytes), page));
    }
  }
}

}  // namespace
}  // namespace quarry
