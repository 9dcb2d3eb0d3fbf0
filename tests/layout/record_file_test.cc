#include "record_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>

#include "quarry/base/random.h"
#include "quarry/base/units.h"
#include "support/status_matchers.h"
#include "support/temporary_folder.h"
#include "support/unsynced_backend.h"

namespace quarry {
namespace {

using testing::HasSubstr;
using Record = std::vector<std::byte>;

constexpr DatabaseId kRecordsId{std::byte{7}};
constexpr uint64_t kGeneration = 3;

Record RandomRecord(Rng& rng, uint64_t bytes) {
  Record record(bytes);
  for (std::byte& byte : record) byte = static_cast<std::byte>(rng());
  return record;
}

// Records of the sizes where pages begin and end, in a file.
class Records {
 public:
  explicit Records(uint64_t seed) : folder_("records") {
    Rng rng(seed);
    for (const uint64_t bytes : {0, 1, 4095, 4096, 4097, 0, 20000, 3, 3 * 4096}) {
      records_.push_back(RandomRecord(rng, bytes));
    }
    auto writer = RecordWriter::Create(*backend_, path());
    EXPECT_OK(writer);
    for (const Record& record : records_) {  // in parts, whose ends lie anywhere
      const std::span<const std::byte> all(record);
      const size_t cut = rng.Below(record.size() + 1);
      EXPECT_OK((*writer)->Append({all.first(cut), {}, all.subspan(cut)}));
    }
    const auto bytes = (*writer)->Finish(kRecordsId, kGeneration);
    EXPECT_OK(bytes);
    file_bytes_ = *bytes;
  }
  std::string path() const { return folder_ / "records.tmp"; }
  IoBackend& backend() const { return *backend_; }
  uint64_t file_bytes() const { return file_bytes_; }
  const std::vector<Record>& records() const { return records_; }
  Result<std::unique_ptr<RecordFile>> Open() const {
    return RecordFile::Open(*backend_, path(), kRecordsId, kGeneration, file_bytes_);
  }
  void Flip(uint64_t offset) const {
    std::fstream file(path(), std::ios::in | std::ios::out | std::ios::binary);
    file.seekg(static_cast<std::streamoff>(offset));
    const int byte = file.get();
    file.seekp(static_cast<std::streamoff>(offset));
    file.put(static_cast<char>(byte ^ 0x40));
    ASSERT_TRUE(file.good());
  }

 private:
  const TemporaryFolder folder_;
  const std::unique_ptr<IoBackend> backend_ = std::make_unique<testing_util::UnsyncedBackend>();
  std::vector<Record> records_;
  uint64_t file_bytes_ = 0;
};

Record Copy(std::span<const std::byte> bytes) { return {bytes.begin(), bytes.end()}; }

TEST(RecordFileTest, GivesEveryRecordBackInAnyOrder) {
  const Records written(1);
  ASSERT_OK_AND_ASSIGN(const auto file, written.Open());
  ASSERT_EQ(file->size(), written.records().size());
  IoBuffer buffer;
  for (int round = 0; round < 2; ++round) {
    for (uint64_t i = written.records().size(); i-- > 0;) {
      EXPECT_EQ(file->bytes(i), written.records()[i].size());
      ASSERT_OK_AND_ASSIGN(const auto read, file->Read(i, buffer));
      EXPECT_EQ(Copy(read), written.records()[i]) << "record " << i;
    }
  }
}

TEST(RecordFileTest, GivesAnyRangeOfARecord) {
  constexpr uint64_t kSeed = 2;
  SCOPED_TRACE(testing::Message() << "seed " << kSeed);
  const Records written(kSeed);
  ASSERT_OK_AND_ASSIGN(const auto file, written.Open());
  Rng rng(kSeed);
  IoBuffer buffer;
  for (int i = 0; i < 1000; ++i) {
    const uint64_t number = rng.Below(written.records().size());
    const Record& record = written.records()[number];
    const uint64_t first = rng.Below(record.size() + 1);
    const uint64_t count = rng.Below(record.size() - first + 1);
    ASSERT_OK_AND_ASSIGN(const auto read, file->Read(number, first, count, buffer));
    EXPECT_TRUE(std::ranges::equal(read, std::span(record).subspan(first, count)))
        << "record " << number << " [" << first << ", +" << count << ")";
  }
}

TEST(RecordFileTest, AFileWithoutRecordsIsOne) {
  const TemporaryFolder folder("records");
  const std::unique_ptr<IoBackend> backend = MakeDefaultBackend();
  ASSERT_OK_AND_ASSIGN(auto writer, RecordWriter::Create(*backend, folder / "none.tmp"));
  ASSERT_OK_AND_ASSIGN(const auto bytes, writer->Finish(kRecordsId, kGeneration));
  ASSERT_OK_AND_ASSIGN(const auto file,
                       RecordFile::Open(*backend, folder / "none.tmp", kRecordsId, kGeneration, bytes));
  EXPECT_EQ(file->size(), 0u);
}

TEST(RecordFileTest, RefusesAFileOfAnotherDatabaseGenerationOrSize) {
  const Records written(3);
  const auto code = [&](const DatabaseId& id, uint64_t generation, uint64_t bytes) {
    return RecordFile::Open(written.backend(), written.path(), id, generation, bytes).status().code();
  };
  EXPECT_EQ(code(kRecordsId, kGeneration, written.file_bytes()), Code::kOk);
  EXPECT_EQ(code(DatabaseId{}, kGeneration, written.file_bytes()), Code::kCorruption);
  EXPECT_EQ(code(kRecordsId, kGeneration + 1, written.file_bytes()), Code::kCorruption);
  EXPECT_EQ(code(kRecordsId, kGeneration, written.file_bytes() + 4096), Code::kCorruption);
}

// Pages of records are verified when they are read, the others when the file is opened.
TEST(RecordFileTest, ADamagedPageIsFoundAndNamedAndTheOthersStayReadable) {
  const Records written(4);
  uint64_t in_records = 0;
  for (uint64_t page = 0; page < written.file_bytes() / kPageBytes; ++page) {
    SCOPED_TRACE(testing::Message() << "page " << page);
    written.Flip(page * kPageBytes);
    const auto file = written.Open();
    std::vector<Status> faults;
    if (!file.ok()) faults.push_back(file.status());
    IoBuffer buffer;
    for (uint64_t i = 0; file.ok() && i < (*file)->size(); ++i) {
      const auto read = (*file)->Read(i, buffer);
      if (read.ok()) {
        EXPECT_EQ(Copy(*read), written.records()[i]);
        continue;
      }
      faults.push_back(read.status());
      EXPECT_THAT(std::string(read.status().message()), HasSubstr("record " + std::to_string(i)));
      ++in_records;
    }
    written.Flip(page * kPageBytes);
    ASSERT_EQ(faults.size(), 1u) << "a page belongs to one record";
    EXPECT_THAT(faults[0], IsStatus(Code::kCorruption));
    EXPECT_THAT(std::string(faults[0].message()), HasSubstr("records.tmp"));
  }
  EXPECT_EQ(in_records, 1u + 1 + 1 + 2 + 5 + 1 + 3);
}

TEST(RecordFileTest, AnUntouchedPageOfADamagedRecordIsStillRead) {
  const Records written(5);
  ASSERT_OK_AND_ASSIGN(const auto file, written.Open());
  // Record 6 has five pages; the superblock and five pages of records 1 to 4 stand before it.
  written.Flip(kPageBytes * (1 + 5 + 2));
  IoBuffer buffer;
  for (uint64_t page = 0; page < 5; ++page) {
    const uint64_t count = std::min<uint64_t>(kPageBytes, 20000 - page * kPageBytes);
    EXPECT_EQ(file->Read(6, page * kPageBytes, count, buffer).ok(), page != 2) << "page " << page;
  }
}

}  // namespace
}  // namespace quarry
