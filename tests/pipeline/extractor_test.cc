#include "extractor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <set>

#include "quarry/base/random.h"
#include "quarry/base/units.h"
#include "quarry/format/batch_view.h"
#include "support/status_matchers.h"

namespace quarry {
namespace {

const std::array<std::byte, 16> kDatabaseId{std::byte{7}};

// A table of known rows, its reader, and a folder that is removed at the end.
class TableFile {
 public:
  TableFile(ElementType type, uint64_t dim, uint64_t rows) {
    directory_ = testing::TempDir() + "quarry-extractor-" + std::to_string(getpid());
    std::filesystem::create_directories(directory_);
    auto geometry = FeatureGeometry::Make(type, dim, rows);
    EXPECT_OK(geometry);
    auto writer = FeatureTableWriter::Create(*backend_, directory_ + "/rows.qft", *geometry, kDatabaseId, 1);
    EXPECT_OK(writer);
    for (uint64_t row = 0; row < rows; ++row) {
      EXPECT_OK((*writer)->Append(Row(row, geometry->row_bytes)));
    }
    auto bytes = (*writer)->Finish();
    EXPECT_OK(bytes);
    const TableRecord record{.name = "rows",
                             .file = "rows.qft",
                             .element_type = type,
                             .row_count = rows,
                             .dim = dim,
                             .file_bytes = *bytes};
    auto table = FeatureTable::Open(*backend_, directory_, record, kDatabaseId);
    EXPECT_OK(table);
    table_ = std::move(table).value();
  }
  ~TableFile() {
    std::error_code ignored;
    std::filesystem::remove_all(directory_, ignored);
  }
  static std::vector<std::byte> Row(uint64_t row, uint64_t bytes) {
    std::vector<std::byte> out(bytes);
    for (uint64_t i = 0; i < bytes; ++i)
      out[i] = static_cast<std::byte>(Mix64(row * 31 + i / 8) >> i % 8 * 8);
    return out;
  }
  IoBackend& backend() { return *backend_; }
  const FeatureTable& table() const { return *table_; }
  std::string path() const { return directory_ + "/rows.qft"; }

 private:
  std::string directory_;
  std::unique_ptr<IoBackend> backend_ = MakeDefaultBackend();
  std::unique_ptr<FeatureTable> table_;
};

struct Loaded {
  std::unique_ptr<FeatureBuffer> buffer;
  std::vector<uint32_t> slots, misses, waits;
  LoadStats stats;
  Status status;
};

Loaded LoadRows(TableFile& file, Extractor& extractor, const std::vector<NodeId>& nodes,
                const std::atomic<bool>& cancelled = false) {
  Loaded out;
  const FeatureGeometry& geometry = file.table().geometry();
  auto buffer = FeatureBuffer::Make({.node_count = geometry.row_count,
                                     .slot_bytes = RowStride(geometry.element_type, geometry.dim),
                                     .slot_count = std::max<size_t>(nodes.size(), 1)});
  EXPECT_OK(buffer);
  out.buffer = std::move(buffer).value();
  out.slots.resize(nodes.size());
  EXPECT_OK(out.buffer->Acquire(nodes, out.slots, out.misses, out.waits));
  out.status = extractor.Load(RowTarget::In(*out.buffer), nodes, out.slots, out.misses, cancelled, out.stats);
  return out;
}

void ExpectRows(TableFile& file, const Loaded& loaded, const std::vector<NodeId>& nodes) {
  ASSERT_OK(loaded.status);
  ASSERT_OK(loaded.buffer->WaitLoaded(loaded.slots));
  for (size_t i = 0; i < nodes.size(); ++i) {
    const auto row = TableFile::Row(nodes[i], file.table().geometry().row_bytes);
    ASSERT_EQ(std::memcmp(loaded.buffer->SlotData(loaded.slots[i]), row.data(), row.size()), 0)
        << "row " << nodes[i];
  }
}

std::vector<NodeId> RandomRows(Rng& rng, uint64_t rows, size_t count) {
  std::vector<NodeId> all(rows);
  for (NodeId v = 0; v < rows; ++v) all[v] = v;
  for (size_t i = 0; i < count; ++i) std::swap(all[i], all[i + rng.Below(rows - i)]);
  all.resize(count);
  return all;
}

std::unique_ptr<Extractor> MakeExtractor(TableFile& file, ExtractorOptions options = {}) {
  options.staging_bytes = std::max(options.staging_bytes, Extractor::StagingBytesMin(file.table()));
  auto extractor = Extractor::Make(file.backend(), file.table(), options);
  EXPECT_OK(extractor);
  return std::move(extractor).value();
}

TEST(ExtractorTest, BringsEveryRowToItsSlotForEveryRowLayoutDepthAndStaging) {
  const struct {
    ElementType type;
    uint64_t dim, rows;
  } tables[] = {{ElementType::kFloat32, 128, 5000},  // one block a row
                {ElementType::kFloat32, 1, 20000},   // 1,024 rows a page
                {ElementType::kFloat32, 100, 4000},  // 400 bytes: ten rows a page and a gap
                {ElementType::kFloat16, 1433, 700},  // 2,866 bytes
                {ElementType::kInt8, 9, 9000},      {ElementType::kFloat32, 3000, 300}};  // three pages
  for (const auto& t : tables) {
    TableFile file(t.type, t.dim, t.rows);
    for (const auto& [depth, staging, gap] : std::vector<std::tuple<unsigned, uint64_t, double>>{
             {1, 0, 1}, {64, 16 * kMiB, 1}, {7, 512 * kKiB, 1e6}}) {
      SCOPED_TRACE(testing::Message() << t.rows << " x " << t.dim << " depth " << depth);
      // The profile's ratio is the gap that is bridged.
      auto extractor =
          MakeExtractor(file, {.io_depth = depth,
                               .staging_bytes = staging,
                               .device = {.random_reads_per_second = 1, .sequential_bytes_per_second = gap}});
      Rng rng(t.dim);
      for (const size_t count : {size_t{0}, size_t{1}, t.rows / 7, t.rows}) {
        const std::vector<NodeId> nodes = RandomRows(rng, t.rows, count);
        const Loaded loaded = LoadRows(file, *extractor, nodes);
        ExpectRows(file, loaded, nodes);
        if (HasFatalFailure()) return;
        EXPECT_GE(loaded.stats.bytes, count == 0 ? 0 : file.table().geometry().row_bytes);
      }
    }
  }
}

TEST(ExtractorTest, MergesNeighbouringRowsIntoFewRequests) {
  TableFile file(ElementType::kFloat32, 128, 4096);
  auto extractor = MakeExtractor(file);
  std::vector<NodeId> nodes;
  for (NodeId v = 4095; v < 4096; v -= 2) nodes.push_back(v);  // every other row, backwards
  const Loaded loaded = LoadRows(file, *extractor, nodes);
  ExpectRows(file, loaded, nodes);
  EXPECT_EQ(nodes.size(), 2048u);
  EXPECT_EQ(loaded.stats.requests, 8u) << "2 MiB in requests of 256 KiB";
  EXPECT_LE(loaded.stats.bytes, 4096 * 512u);
}

TEST(ExtractorTest, StopsSoonAfterBeingCancelledAndLoadsAgainLater) {
  TableFile file(ElementType::kFloat32, 128, 20000);
  auto extractor = MakeExtractor(file, {.io_depth = 2});
  Rng rng(1);
  const std::vector<NodeId> nodes = RandomRows(rng, 20000, 10000);
  const Loaded cancelled = LoadRows(file, *extractor, nodes, true);
  EXPECT_THAT(cancelled.status, IsStatus(Code::kCancelled));
  ExpectRows(file, LoadRows(file, *extractor, nodes), nodes);
}

TEST(ExtractorTest, ADamagedCellIsCorruptionAndTheExtractorSurvivesIt) {
  TableFile file(ElementType::kFloat32, 100, 4000);
  {
    std::fstream raw(file.path(), std::ios::in | std::ios::out | std::ios::binary);
    raw.seekp(static_cast<std::streamoff>(file.table().geometry().RowOffset(1234)));
    const char byte = static_cast<char>(raw.peek());
    raw.put(static_cast<char>(byte ^ 1));
  }
  auto extractor = MakeExtractor(file);
  Rng rng(1);
  const Loaded damaged = LoadRows(file, *extractor, RandomRows(rng, 4000, 4000));
  EXPECT_THAT(damaged.status, IsStatus(Code::kCorruption));
  std::vector<NodeId> sound;
  for (NodeId v = 2000; v < 2500; ++v) sound.push_back(v);
  ExpectRows(file, LoadRows(file, *extractor, sound), sound);
}

}  // namespace
}  // namespace quarry
