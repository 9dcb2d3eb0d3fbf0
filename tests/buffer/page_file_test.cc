#include "quarry/buffer/page_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <fstream>
#include <iomanip>
#include <sstream>

#include "page_map.h"
#include "quarry/io/buffer.h"
#include "small_pages.h"
#include "support/status_matchers.h"

namespace quarry {
namespace {

using testing::HasSubstr;

std::string Hex(std::span<const std::byte> bytes) {
  std::ostringstream out;
  for (const std::byte b : bytes)
    out << std::hex << std::setw(2) << std::setfill('0') << std::to_integer<int>(b);
  return out.str();
}

TEST(PageFormatTest, AHeaderHasTheseBytes) {
  std::vector<std::byte> page(4096, std::byte{0xab});
  const PageEntry entry = SealPage(0x01020304, 0x1112131415161718, 9, page);
  EXPECT_EQ(Hex(std::span(page).first(24)),
            "261a1153ab014c28"  // checksum
            "1817161514131211"  // version
            "04030201"          // page
            "00000000");
  EXPECT_EQ(page[24], std::byte{0xab});
  EXPECT_EQ(entry, (PageEntry{0x1112131415161718, 9, 0x53111a26}));
}

TEST(PageFormatTest, AMapPageHasTheseBytes) {
  const PageEntry entries[] = {{0x1112131415161718, 0x21222324, 0x31323334}, {}};
  std::vector<std::byte> bytes(kMapPageBytes, std::byte{0xff});
  EncodeMapPage(entries, 0x4142434445464748, 3, std::span(bytes).first<kMapPageBytes>());
  EXPECT_EQ(Hex(std::span(bytes).first(48)),
            "1817161514131211"
            "24232221"
            "34333231"  // version, slot, checksum
            "0000000000000000"
            "ffffffff"
            "00000000"  // never written
            "00000000000000000000000000000000");
  EXPECT_EQ(Hex(std::span(bytes).subspan(4064)),
            "00000000000000000000000000000000"
            "4847464544434241"
            "00000000"
            "9b0a0875");
  PageEntry decoded[2];
  ASSERT_OK(DecodeMapPage(std::span(bytes).first<kMapPageBytes>(), 0x4142434445464748, 3, "m", decoded));
  EXPECT_EQ(decoded[0], entries[0]);
  EXPECT_EQ(decoded[1], entries[1]);
}

TEST(PageFormatTest, AMapPageVerifiesInItsPlaceAlone) {
  std::vector<std::byte> bytes(kMapPageBytes);
  const auto page = std::span(bytes).first<kMapPageBytes>();
  EncodeMapPage({}, 5, 3, page);
  EXPECT_OK(DecodeMapPage(page, 5, 3, "m", {}));
  EXPECT_THAT(std::string(DecodeMapPage(page, 5, 2, "m", {}).message()),
              HasSubstr("m: map page 2 (offset 12288)"));
  EXPECT_THAT(std::string(DecodeMapPage(page, 4, 3, "m", {}).message()),
              HasSubstr("generation 5 instead of 4"));
}

// Writes through the file alone, as the pool does.
class PageFileTest : public testing::Test {
 protected:
  void SetUp() override { ASSERT_OK(pages_.Create()); }
  PageFile& file() { return *pages_.file; }

  uint32_t Write(PageNumber page, uint8_t value) {
    const uint32_t slot = file().AllocateSlot();
    Seal(page, value, file().entry(page).version + 1, slot);
    EXPECT_OK(DiskBackend().WriteAt(file().file(), file().SlotOffset(slot), buffer_.span()));
    file().SetEntry(page, sealed_);
    return slot;
  }
  void Seal(PageNumber page, uint8_t value, uint64_t version, uint32_t slot) {
    std::ranges::fill(buffer_.span(), std::byte{value});
    sealed_ = SealPage(page, version, slot, buffer_.span());
  }
  Status Read(PageNumber page) { return file().Read(page, buffer_.span()); }
  bool Holds(PageNumber page, uint8_t value) {
    return Read(page).ok() && buffer_.span()[sizeof(PageHeader)] == std::byte{value};
  }
  void WriteMap(uint64_t generation) {
    pages_.committed = pages_.MapName(generation);
    ASSERT_OK(file().WriteMap(pages_.committed.path, generation));
  }
  void Commit(uint64_t generation) {
    WriteMap(generation);
    file().CommitMap();
  }
  // By hand, past the page file.
  static void Poke(const std::string& path, uint64_t offset, std::span<const std::byte> bytes) {
    std::fstream out(path, std::ios::in | std::ios::out | std::ios::binary);
    out.seekp(static_cast<std::streamoff>(offset));
    out.write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
    ASSERT_TRUE(out.good());
  }
  std::string FaultOf(PageNumber page) {
    const Status status = Read(page);
    EXPECT_THAT(status, IsStatus(Code::kCorruption));
    return std::string(status.message());
  }

  SmallPages pages_{DiskBackend(), 8};
  IoBuffer buffer_ = IoBuffer::Allocate(4096).value();
  PageEntry sealed_;
};

TEST_F(PageFileTest, ASlotThatAMapNamesIsNotGivenOut) {
  EXPECT_EQ(Write(0, 1), 0u);
  EXPECT_EQ(Write(0, 2), 1u);
  EXPECT_EQ(Write(0, 3), 0u) << "no map on disk names the first version";
  Commit(1);
  EXPECT_EQ(Write(0, 4), 1u);
  EXPECT_EQ(Write(0, 5), 2u) << "slot 0 is the committed map's";
  EXPECT_EQ(Write(0, 6), 1u);
  WriteMap(2);
  EXPECT_EQ(Write(0, 7), 2u);
  EXPECT_EQ(Write(0, 8), 3u) << "slot 1 may be committed or be so soon";
  file().CommitMap();
  EXPECT_EQ(Write(0, 9), 0u);
  EXPECT_EQ(file().slot_count(), 4u);
  ASSERT_OK(pages_.Restart());
  EXPECT_TRUE(Holds(0, 6));
  EXPECT_EQ(file().slot_count(), 4u);
  EXPECT_EQ(Write(1, 1), 0u);
  EXPECT_EQ(Write(1, 1), 2u) << "slot 1 holds page 0";
}

TEST_F(PageFileTest, AMapWhoseCommitIsInDoubtKeepsItsSlotsUntilTheNextCommit) {
  Write(0, 1);
  Commit(1);
  EXPECT_EQ(Write(0, 2), 1u);
  WriteMap(2);  // the catalog says that it could not commit it
  const PageMapName doubtful = pages_.committed;
  EXPECT_EQ(Write(0, 3), 2u);
  WriteMap(3);
  EXPECT_EQ(Write(0, 4), 3u);
  EXPECT_EQ(Write(0, 5), 4u);
  pages_.committed = doubtful;  // but it did
  ASSERT_OK(pages_.Restart());
  EXPECT_TRUE(Holds(0, 2));
}

TEST_F(PageFileTest, ACommitFreesWhatOnlyOlderMapsName) {
  Write(0, 1);
  Commit(1);
  Write(0, 2);
  WriteMap(2);
  Write(0, 3);
  Commit(3);
  EXPECT_EQ(Write(1, 1), 0u);
  EXPECT_EQ(Write(2, 1), 1u);
  EXPECT_EQ(Write(3, 1), 3u) << "slot 2 holds page 0";
}

// Against a model: what pages hold now, and in the committed and the kept map.
TEST_F(PageFileTest, AKeptMapsPagesStayAsLongAsItIsKept) {
  constexpr uint64_t kSeed = 5;
  SCOPED_TRACE(kSeed);
  Rng rng(kSeed);
  using PageValues = std::array<uint8_t, 8>;
  PageValues current{}, committed{}, kept{};  // 0: never written
  uint64_t generation = 0;
  const auto expect = [&](PageFile& file, const PageValues& values) {
    for (PageNumber page = 0; page < values.size(); ++page) {
      if (values[page] == 0) {
        ASSERT_EQ(file.entry(page), PageEntry{}) << page;
        continue;
      }
      ASSERT_OK(file.Read(page, buffer_.span()));
      ASSERT_EQ(buffer_.span()[sizeof(PageHeader)], std::byte{values[page]}) << page;
    }
  };
  for (int step = 0; step < 1500 && !HasFatalFailure(); ++step) {
    SCOPED_TRACE(testing::Message() << "step " << step);
    const uint64_t what = rng.Below(20);
    if (what > 2) {
      const auto page = static_cast<PageNumber>(rng.Below(current.size()));
      current[page] = static_cast<uint8_t>(1 + rng.Below(255));
      Write(page, current[page]);
    } else if (what > 0) {
      const auto which = static_cast<KeptMap>(rng.Below(3));
      WriteMap(++generation);
      file().CommitMap(which);
      committed = current;
      if (which != KeptMap::kAsBefore) {
        kept = which == KeptMap::kThis ? current : PageValues{};
        pages_.kept = which == KeptMap::kThis ? pages_.committed : PageMapName{};
      }
    } else {
      ASSERT_OK(pages_.Restart());
      current = committed;
      expect(file(), current);
      if (pages_.kept.path.empty()) continue;
      const auto then = PageFile::Open(DiskBackend(), pages_.spec, pages_.kept);
      ASSERT_OK(then);
      expect(**then, kept);
      uint32_t kept_pages = 0;
      for (PageNumber page = 0; page < kept.size(); ++page) {
        const PageEntry entry = (*then)->entry(page);
        ASSERT_EQ(file().is_kept(page), entry.slot != kNoPageSlot && entry == file().entry(page));
        kept_pages += entry.slot != kNoPageSlot ? 1 : 0;
      }
      // What verifies one map beside another reads each place once.
      uint32_t both = 0, visits = 0;
      for (PageNumber page = 0; page < kept.size(); ++page) both += file().is_kept(page) ? 1 : 0;
      const PageVisit visit = [&](PageNumber, const Result<std::span<const std::byte>>& body) {
        EXPECT_OK(body);
        ++visits;
      };
      ASSERT_OK(VerifyPageFile(DiskBackend(), pages_.spec, pages_.kept, visit, pages_.committed));
      ASSERT_EQ(visits, kept_pages - both);
    }
    ASSERT_LE(file().slot_count(), 4 * current.size());
  }
}

TEST_F(PageFileTest, AKeptMapThatNamesAnotherPagesSlotIsRefused) {
  Write(0, 1);
  Commit(1);
  const PageMapName first = pages_.committed;
  Write(0, 2);
  Write(0, 3);
  Commit(2);
  const uint32_t slot = Write(1, 1);
  ASSERT_EQ(slot, 0u) << "nobody keeps the first map";
  Commit(3);
  EXPECT_THAT(PageFile::Open(DiskBackend(), pages_.spec, pages_.committed, first),
              IsStatus(Code::kCorruption, HasSubstr("page 0 is in slot 0, where")));
}

TEST_F(PageFileTest, AReleasedSlotIsGivenAgain) {
  EXPECT_EQ(file().AllocateSlot(), 0u);
  EXPECT_EQ(file().AllocateSlot(), 1u);
  file().ReleaseSlot(0);
  EXPECT_EQ(file().AllocateSlot(), 0u);
}

TEST_F(PageFileTest, ARestartFindsTheCommittedMapAlone) {
  Write(0, 1);
  Write(5, 2);
  Commit(7);
  Write(0, 3);
  Write(1, 4);
  ASSERT_OK(file().Sync());
  ASSERT_OK(pages_.Restart());
  EXPECT_TRUE(Holds(0, 1));
  EXPECT_TRUE(Holds(5, 2));
  EXPECT_EQ(file().entry(1), PageEntry{});
}

TEST_F(PageFileTest, AWriteThatACrashTearsDoesNoHarm) {
  Write(0, 1);
  Commit(1);
  const uint32_t slot = file().AllocateSlot();
  Seal(0, 2, 2, slot);
  Poke(pages_.spec.path, file().SlotOffset(slot), buffer_.span().first(2048));
  ASSERT_OK(pages_.Restart());
  EXPECT_TRUE(Holds(0, 1));
  EXPECT_EQ(file().slot_count(), 1u) << "half a slot is none";
  EXPECT_EQ(Write(0, 2), slot);
  EXPECT_TRUE(Holds(0, 2));
}

TEST_F(PageFileTest, DamageOfANamedSlotIsFoundWithPageAndSlot) {
  Write(6, 1);
  const uint32_t slot = Write(5, 1);
  Seal(5, 2, 2, slot);
  Poke(pages_.spec.path, file().SlotOffset(slot), buffer_.span().first(2048));
  EXPECT_THAT(FaultOf(5), HasSubstr("pages.qpf: page 5, slot 1 (offset 8192): checksum"));
  EXPECT_TRUE(Holds(6, 1));
}

TEST_F(PageFileTest, AMisdirectedWriteIsFound) {
  const uint32_t slot = Write(5, 1);
  Seal(4, 1, 1, slot);
  Poke(pages_.spec.path, file().SlotOffset(slot), buffer_.span());
  EXPECT_THAT(FaultOf(5), HasSubstr("page 4 is there: a write or read went to the wrong place"));
}

TEST_F(PageFileTest, ALostWriteIsFound) {
  const uint32_t first = Write(5, 1);
  const std::vector<std::byte> older(buffer_.span().begin(), buffer_.span().end());
  Write(5, 2);
  ASSERT_EQ(Write(5, 3), first);
  Poke(pages_.spec.path, file().SlotOffset(first), older);
  EXPECT_THAT(FaultOf(5), HasSubstr("version 1 is there instead of 3: a write was lost"));
}

// A version that no map names is given again after a crash.
TEST_F(PageFileTest, ALostWriteIsFoundWhereTheVersionIsTheSame) {
  Write(5, 1);
  Commit(1);
  const uint32_t slot = Write(5, 2);
  const std::vector<std::byte> older(buffer_.span().begin(), buffer_.span().end());
  ASSERT_OK(pages_.Restart());
  ASSERT_EQ(Write(5, 3), slot);
  ASSERT_EQ(file().entry(5).version, 2u);
  Poke(pages_.spec.path, file().SlotOffset(slot), older);
  EXPECT_THAT(FaultOf(5), HasSubstr("another version 2 is there than the map names"));
}

TEST_F(PageFileTest, EveryByteOfAMapIsVerified) {
  Write(0, 1);
  Write(3, 2);
  Commit(1);
  ASSERT_EQ(std::filesystem::file_size(pages_.committed.path), 8192u);
  std::ifstream in(pages_.committed.path, std::ios::binary);
  std::string content(8192, '\0');
  in.read(content.data(), 8192);
  for (size_t at = 0; at < content.size(); at += at < 128 || at > 8000 || (at > 4000 && at < 4200) ? 1 : 61) {
    const auto damaged = static_cast<std::byte>(content[at] ^ 0x10);
    Poke(pages_.committed.path, at, {&damaged, 1});
    const Status status = PageFile::Open(DiskBackend(), pages_.spec, pages_.committed).status();
    ASSERT_FALSE(status.ok()) << at;
    ASSERT_THAT(std::string(status.message()), HasSubstr("map-1")) << at;
    const auto whole = static_cast<std::byte>(content[at]);
    Poke(pages_.committed.path, at, {&whole, 1});
  }
  EXPECT_OK(PageFile::Open(DiskBackend(), pages_.spec, pages_.committed));
}

TEST_F(PageFileTest, FilesThatAreNotWhatTheCatalogSaysAreRefused) {
  Write(7, 1);
  Commit(1);
  const auto fault = [&](const PageFileSpec& spec, const PageMapName& map) {
    const Status status = PageFile::Open(DiskBackend(), spec, map).status();
    EXPECT_THAT(status, IsStatus(Code::kCorruption));
    return std::string(status.message());
  };
  PageFileSpec spec = pages_.spec;
  spec.generation = 2;
  EXPECT_THAT(fault(spec, pages_.committed), HasSubstr("page file of generation 2"));
  spec = pages_.spec;
  spec.database_id[3] = std::byte{1};
  EXPECT_THAT(fault(spec, pages_.committed), HasSubstr("another database's"));
  spec = pages_.spec;
  spec.page_count = 9;
  fault(spec, pages_.committed);
  spec = pages_.spec;
  spec.page_bytes = 8192;
  fault(spec, pages_.committed);
  EXPECT_THAT(fault(pages_.spec, {pages_.committed.path, 2}), HasSubstr("page map of generation 2"));
  EXPECT_THAT(fault(pages_.spec, {pages_.spec.path, 1}), HasSubstr("not the page map"));
  std::filesystem::resize_file(pages_.spec.path, 4096 + 4095);
  EXPECT_THAT(fault(pages_.spec, pages_.committed), HasSubstr("page 7 is in slot 0"));
  std::filesystem::resize_file(pages_.committed.path, 8191);
  EXPECT_THAT(fault(pages_.spec, pages_.committed), HasSubstr("8191 bytes instead of the 8192"));
}

TEST_F(PageFileTest, AMapThatNamesASlotTwiceIsRefused) {
  const PageEntry twice[] = {{1, 0, 5}, {1, 0, 5}, {}, {}, {}, {}, {}, {}};
  Write(0, 1);
  const PageMapName map = pages_.MapName(1);
  ASSERT_OK(WriteMapFile(DiskBackend(), pages_.spec, map, twice));
  const Status status = PageFile::Open(DiskBackend(), pages_.spec, map).status();
  EXPECT_THAT(std::string(status.message()), HasSubstr("page 1 is in slot 0"));
}

TEST_F(PageFileTest, SizesAndNamesThatCannotBeAreRefused) {
  PageFileSpec spec = pages_.spec;
  EXPECT_THAT(PageFile::Create(DiskBackend(), spec), IsStatus(Code::kAlreadyExists));
  spec.path += "2";
  for (const uint32_t page_bytes : {0u, 24u, 4095u, 6144u}) {
    spec.page_bytes = page_bytes;
    EXPECT_THAT(PageFile::Create(DiskBackend(), spec), IsStatus(Code::kInvalidArgument));
  }
  spec.page_bytes = 4096;
  spec.page_count = PageFile::kPageCountMax + 1;
  EXPECT_THAT(PageFile::Create(DiskBackend(), spec), IsStatus(Code::kInvalidArgument));
  EXPECT_THAT(PageFile::Open(DiskBackend(), pages_.spec, pages_.MapName(3)), IsStatus(Code::kNotFound));
  Commit(1);
  EXPECT_THAT(file().WriteMap(pages_.committed.path, 1), IsStatus(Code::kAlreadyExists));
  ASSERT_OK(pages_.Restart()) << "and the file that there was is left alone";
}

TEST_F(PageFileTest, MapsOfSeveralPagesAreReadBack) {
  for (const uint32_t count : {254u, 255u, 256u, 510u, 70'000u}) {
    SCOPED_TRACE(count);
    PageFileSpec spec = pages_.spec;
    spec.page_count = count;
    std::vector<PageEntry> entries(count);
    for (uint32_t page = 0; page < count; page += 3) entries[page] = {page + 1, count - page, page * 7};
    const PageMapName map = pages_.MapName(count);
    ASSERT_OK(WriteMapFile(DiskBackend(), spec, map, entries));
    ASSERT_OK_AND_ASSIGN(const auto read, ReadMapFile(DiskBackend(), spec, map, count + 1));
    EXPECT_EQ(read, entries);
  }
}

TEST_F(PageFileTest, VerifyReportsEveryFaultAndGivesTheRest) {
  for (PageNumber page = 0; page < 6; ++page) Write(5 - page, static_cast<uint8_t>(page));
  Commit(1);
  const std::byte damage{0x77};
  for (const uint32_t slot : {1u, 4u}) Poke(pages_.spec.path, file().SlotOffset(slot) + 3000, {&damage, 1});
  std::vector<PageNumber> good, bad;
  const PageVisit visit = [&](PageNumber page, const Result<std::span<const std::byte>>& body) {
    (body.ok() ? good : bad).push_back(page);
    if (body.ok()) {
      EXPECT_EQ((*body)[0], static_cast<std::byte>(5 - page));
      EXPECT_EQ(body->size(), 4096u - sizeof(PageHeader));
    } else {
      EXPECT_THAT(body, IsStatus(Code::kCorruption));
    }
  };
  ASSERT_OK(VerifyPageFile(DiskBackend(), pages_.spec, pages_.committed, visit));
  EXPECT_THAT(good, testing::ElementsAre(5, 3, 2, 0));
  EXPECT_THAT(bad, testing::ElementsAre(4, 1));
  EXPECT_THAT(VerifyPageFile(DiskBackend(), pages_.spec, pages_.MapName(9), visit),
              IsStatus(Code::kNotFound));
}

}  // namespace
}  // namespace quarry
