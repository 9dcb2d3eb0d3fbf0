#include "quarry/embedding/parted_table.h"

#include <algorithm>
#include <atomic>
#include <cassert>
#include <numeric>
#include <utility>

#include "quarry/base/kill_point.h"
#include "quarry/base/process.h"
#include "quarry/base/thread.h"
#include "quarry/base/trace.h"
#include "quarry/base/units.h"
#include "quarry/embedding/pooled_table.h"
#include "quarry/format/feature_table.h"
#include "quarry/io/buffer.h"
#include "quarry/io/ring.h"
#include "row_record.h"

namespace quarry {
namespace {

constexpr uint64_t kPartPageBytesMax = 1 * kMiB;
constexpr unsigned kPartDepth = 8;  // requests in flight
constexpr uint32_t kNone = ~uint32_t{0};

class PartedTableImpl final : public PartedTable {
 public:
  PartedTableImpl(IoBackend& backend, PageFile& file, PartLayout layout,
                  MemoryBudget::Reservation reservation)
      : backend_(backend),
        file_(file),
        layout_(std::move(layout)),
        record_(layout_.file_spec()),
        reservation_(std::move(reservation)),
        held_(layout_.parts(), kNone),
        dirty_(file.page_count()) {}

  Status AllocateFrames(uint32_t count) {
    for (uint32_t i = 0; i < count; ++i) {
      QUARRY_TRY(IoBuffer pages, IoBuffer::Allocate(layout_.part_bytes()));
      frames_.push_back({.pages = std::move(pages)});
    }
    QUARRY_TRY(visited_, IoBuffer::Allocate(layout_.page_bytes));
    return Status::Ok();
  }

  const EmbeddingSpec& spec() const override { return layout_.rows; }
  const PartLayout& layout() const override { return layout_; }
  Status Prefetch(std::span<const RowId>) override { return Status::Ok(); }

  Status Read(RowBlock& block) override {
    QUARRY_RETURN_IF_ERROR(CheckRowIds(spec(), block.ids));
    block.Resize(spec());
    return ForEachPart(block.ids, [&](uint32_t part, size_t begin, size_t end) -> Status {
      if (held_[part] == kNone) return Visit(part, block, begin, end);
      const std::byte* const pages = frames_[held_[part]].pages.data();
      for (size_t i = begin; i < end; ++i) {
        MutexLock lock(latches_.Of(block.ids[i]));
        record_.Load(pages + OffsetOf(block.ids[i] - layout_.part_starts[part]), block, i);
      }
      return Status::Ok();
    });
  }

  Status Write(const RowBlock& block) override {
    QUARRY_RETURN_IF_ERROR(CheckRowIds(spec(), block.ids));
    return ForEachPart(block.ids, [&](uint32_t part, size_t begin, size_t end) -> Status {
      if (held_[part] == kNone) {
        return MakeStatus(Code::kInternal, "{}: row {} is written, and its part {} is not held",
                          file_.file().path(), block.ids[begin], part);
      }
      std::byte* const pages = frames_[held_[part]].pages.data();
      for (size_t i = begin; i < end; ++i) {
        const uint64_t row = block.ids[i] - layout_.part_starts[part];
        std::byte* const record = pages + OffsetOf(row);
        MutexLock lock(latches_.Of(block.ids[i]));
        if (block.timestamps[i] <= RowRecord::Timestamp(record)) continue;
        record_.Store(block, i, record);
        dirty_[FirstPage(part) + row / layout_.rows_per_page].store(1, std::memory_order_relaxed);
      }
      return Status::Ok();
    });
  }

  Status Hold(std::span<const uint32_t> parts, std::span<const uint32_t> next) override {
    const double start = MonotonicSeconds();
    assert(parts.size() <= frames_.size());
    QUARRY_RETURN_IF_ERROR(Settle());
    visited_page_ = kNone;
    std::ranges::fill(held_, kNone);
    std::vector<uint32_t> keep(parts.begin(), parts.end());
    QUARRY_RETURN_IF_ERROR(Bring(keep, parts));
    for (uint32_t i = 0; i < frames_.size(); ++i) {
      if (std::ranges::count(parts, frames_[i].part) > 0) held_[frames_[i].part] = i;
    }
    wait_seconds_ += MonotonicSeconds() - start;
    // The next parts that find room beside these.
    std::vector<uint32_t> coming;
    for (const uint32_t part : next) {
      const bool is_new = std::ranges::count(keep, part) == 0;
      if (is_new && keep.size() < frames_.size()) keep.push_back(part);
      if (is_new && keep.back() == part) coming.push_back(part);
    }
    working_ = BackgroundTask<Status>::Start(
        "swap parts",
        [this, keep = std::move(keep), coming = std::move(coming)] { return Swap(keep, coming); });
    return Status::Ok();
  }

  Status Flush() override {
    QUARRY_RETURN_IF_ERROR(Settle());
    for (Frame& frame : frames_) QUARRY_RETURN_IF_ERROR(WriteBack(frame));
    return Status::Ok();
  }

  PartedStats stats() const override {
    return {.parts_read = parts_read_,
            .parts_written = parts_written_,
            .pages_read = pages_read_,
            .pages_written = pages_written_,
            .wait_seconds = wait_seconds_};
  }

 private:
  struct Frame {
    IoBuffer pages;
    uint32_t part = kNone;
  };

  PageNumber FirstPage(uint32_t part) const { return part * layout_.pages_per_part(); }
  // Pages of the part that have rows of it.
  uint32_t PageCount(uint32_t part) const {
    return static_cast<uint32_t>(CeilDiv(layout_.part_rows(part), layout_.rows_per_page));
  }
  // Where the record of a part's row begins: within the part's pages, and within its page.
  uint64_t OffsetOf(uint64_t row) const {
    return row / layout_.rows_per_page * layout_.page_bytes + InPage(row);
  }
  uint64_t InPage(uint64_t row) const {
    return sizeof(PageHeader) + row % layout_.rows_per_page * record_.bytes();
  }
  std::span<std::byte> PageOf(const Frame& frame, uint32_t number) const {
    return frame.pages.span().subspan(uint64_t{number} * layout_.page_bytes, layout_.page_bytes);
  }

  // Calls visit(part, begin, end) for each part that has rows of `ids`.
  template <typename Visitor>
  Status ForEachPart(std::span<const RowId> ids, const Visitor& visit) {
    for (size_t begin = 0; begin < ids.size();) {
      const uint32_t part = layout_.PartOf(ids[begin]);
      size_t end = begin + 1;
      while (end < ids.size() && ids[end] < layout_.part_starts[part + 1]) ++end;
      QUARRY_RETURN_IF_ERROR(visit(part, begin, end));
      begin = end;
    }
    return Status::Ok();
  }

  // Rows of a part that is not held, from its frame if it has one all the same, or else page by page.
  Status Visit(uint32_t part, RowBlock& block, size_t begin, size_t end) {
    MutexLock lock(visit_mutex_);
    QUARRY_RETURN_IF_ERROR(Settle());
    const auto frame = std::ranges::find(frames_, part, &Frame::part);
    for (size_t i = begin; i < end; ++i) {
      const uint64_t row = block.ids[i] - layout_.part_starts[part];
      if (frame != frames_.end()) {
        record_.Load(frame->pages.data() + OffsetOf(row), block, i);
        continue;
      }
      const auto page = static_cast<PageNumber>(FirstPage(part) + row / layout_.rows_per_page);
      if (page != visited_page_) {
        visited_page_ = kNone;
        QUARRY_RETURN_IF_ERROR(LoadPage(page));
        visited_page_ = page;
      }
      record_.Load(visited_.data() + InPage(row), block, i);
    }
    return Status::Ok();
  }

  Status LoadPage(PageNumber page) {
    if (file_.entry(page).slot != kNoPageSlot) return file_.Read(page, visited_.span());
    InitPage(page, visited_.span());
    return Status::Ok();
  }

  void InitPage(PageNumber page, std::span<std::byte> bytes) const {
    record_.Init(uint64_t{page} * layout_.rows_per_page, bytes.subspan(sizeof(PageHeader)));
  }

  // Waits for what goes on in the background; an error of it stays.
  Status Settle() {
    if (working_.valid() && failed_.ok()) failed_ = working_.Get();
    return failed_;
  }

  bool IsDirty(const Frame& frame) const {
    if (frame.part == kNone) return false;
    const auto first = dirty_.begin() + FirstPage(frame.part);
    return std::any_of(first, first + PageCount(frame.part),
                       [](const auto& dirty) { return dirty.load(std::memory_order_relaxed) != 0; });
  }

  // Frames of parts that are not among `keep`: the last ones are empty, or differ from the file in nothing.
  std::vector<Frame*> Leaving(std::span<const uint32_t> keep) {
    std::vector<Frame*> leaving;
    for (Frame& frame : frames_) {
      if (std::ranges::count(keep, frame.part) == 0) leaving.push_back(&frame);
    }
    std::stable_partition(leaving.begin(), leaving.end(),
                          [this](const Frame* frame) { return IsDirty(*frame); });
    return leaving;
  }

  // Brings in those of `wanted` that have no frame, into frames of parts that are not among `keep`, whose rows are
  // written back before: no more of them than it takes. All of `wanted` are in `keep`, and these are no more than the
  // frames.
  Status Bring(std::span<const uint32_t> keep, std::span<const uint32_t> wanted) {
    const ScopedSpan span("swap parts");
    std::vector<Frame*> leaving = Leaving(keep);
    for (const uint32_t part : wanted) {
      if (std::ranges::find(frames_, part, &Frame::part) != frames_.end()) continue;
      Frame& frame = *leaving.back();
      leaving.pop_back();
      QUARRY_RETURN_IF_ERROR(WriteBack(frame));
      frame.part = kNone;
      QUARRY_RETURN_IF_ERROR(ReadPart(part, frame));
      frame.part = part;
    }
    return Status::Ok();
  }

  // The background's part of a swap: what left is written back, too, so that the next swap need not.
  Status Swap(std::span<const uint32_t> keep, std::span<const uint32_t> coming) {
    QUARRY_RETURN_IF_ERROR(Bring(keep, coming));
    for (Frame* const frame : Leaving(keep)) QUARRY_RETURN_IF_ERROR(WriteBack(*frame));
    return Status::Ok();
  }

  Status ReadPart(uint32_t part, Frame& frame) {
    std::vector<IoRequest> requests;
    std::vector<PageEntry> entries(PageCount(part));
    for (uint32_t i = 0; i < entries.size(); ++i) {
      entries[i] = file_.entry(FirstPage(part) + i);
      if (entries[i].slot == kNoPageSlot) {
        InitPage(FirstPage(part) + i, PageOf(frame, i));
        continue;
      }
      requests.push_back({.file = &file_.file(),
                          .offset = file_.SlotOffset(entries[i].slot),
                          .bytes = layout_.page_bytes,
                          .buffer = PageOf(frame, i).data(),
                          .user_data = i});
    }
    pages_read_ += requests.size();
    ++parts_read_;
    return Transfer(requests, [&](uint64_t i) {
      const auto number = static_cast<uint32_t>(i);
      return file_.Check(FirstPage(part) + number, entries[number], PageOf(frame, number));
    });
  }

  // Nobody writes to the frame meanwhile.
  Status WriteBack(Frame& frame) {
    if (frame.part == kNone) return Status::Ok();
    std::vector<IoRequest> requests;
    std::vector<PageEntry> entries(PageCount(frame.part));
    const PageNumber first = FirstPage(frame.part);
    QUARRY_RETURN_IF_ERROR(file_.write_error());
    for (uint32_t i = 0; i < entries.size(); ++i) {
      if (dirty_[first + i].load(std::memory_order_relaxed) == 0) continue;
      entries[i] =
          SealPage(first + i, file_.entry(first + i).version + 1, file_.AllocateSlot(), PageOf(frame, i));
      requests.push_back({.file = &file_.file(),
                          .offset = file_.SlotOffset(entries[i].slot),
                          .bytes = layout_.page_bytes,
                          .buffer = PageOf(frame, i).data(),
                          .user_data = i,
                          .kind = RawRequest::Kind::kWrite});
    }
    if (requests.empty()) return Status::Ok();
    ++parts_written_;
    const Status status = Transfer(requests, [&](uint64_t i) {
      KillPoint("pages: page written, not in the map");
      const auto page = static_cast<PageNumber>(first + i);
      file_.SetEntry(page, entries[i]);
      dirty_[page].store(0, std::memory_order_relaxed);
      ++pages_written_;
      return Status::Ok();
    });
    if (status.ok()) return status;
    file_.SetWriteError(status);
    for (uint32_t i = 0; i < entries.size(); ++i) {
      const bool unwritten = dirty_[first + i].load(std::memory_order_relaxed) != 0;
      if (unwritten && entries[i].slot != kNoPageSlot) file_.ReleaseSlot(entries[i].slot);
    }
    return status;
  }

  // Calls finish(user_data) for each request once it is done.
  template <typename Finish>
  Status Transfer(std::span<const IoRequest> requests, const Finish& finish) {
    if (requests.empty()) return Status::Ok();
    QUARRY_TRY(const std::unique_ptr<IoRing> ring, IoRing::Make(backend_, kPartDepth));
    Status status = ring->Submit(requests);
    std::vector<uint64_t> done;
    while (status.ok() && ring->pending() > 0) {
      done.clear();
      status = ring->Wait(done);
      for (size_t i = 0; i < done.size() && status.ok(); ++i) status = finish(done[i]);
    }
    ring->Drain();
    return status;
  }

  IoBackend& backend_;
  PageFile& file_;
  const PartLayout layout_;
  const RowRecord record_;
  const MemoryBudget::Reservation reservation_;
  std::vector<Frame> frames_;                // those that are not held are the background's while it works
  std::vector<uint32_t> held_;               // by part: its frame; changes in Hold alone
  std::vector<std::atomic<uint8_t>> dirty_;  // by page: differs from what the file has
  RowLatches latches_;

  Mutex visit_mutex_;
  IoBuffer visited_;  // the last page that was read for a row of no held part
  PageNumber visited_page_ = kNone;

  std::atomic<uint64_t> parts_read_{0}, parts_written_{0}, pages_read_{0}, pages_written_{0};
  double wait_seconds_ = 0;
  Status failed_;
  BackgroundTask<Status> working_;  // last: ends before what it uses
};

}  // namespace

uint32_t PartLayout::PartOf(RowId row) const {
  return static_cast<uint32_t>(std::ranges::upper_bound(part_starts, row) - part_starts.begin() - 1);
}

EmbeddingSpec PartLayout::file_spec() const {
  EmbeddingSpec spec = rows;
  spec.row_count = parts() * stride;
  return spec;
}

Result<PartLayout> LayOutParts(const EmbeddingSpec& rows, std::span<const uint64_t> part_starts) {
  PartLayout layout{.rows = rows, .part_starts = {part_starts.begin(), part_starts.end()}};
  uint64_t largest = 1;
  for (uint32_t part = 0; part < layout.parts(); ++part) largest = std::max(largest, layout.part_rows(part));
  const uint64_t row_bytes = RowRecord(rows).bytes();
  const uint64_t page_bytes_max =
      std::max(kPartPageBytesMax, RoundUp(row_bytes + sizeof(PageHeader), kPageBytes));
  layout.page_bytes = static_cast<uint32_t>(
      std::min(page_bytes_max, RoundUp(largest * row_bytes + sizeof(PageHeader), kPageBytes)));
  layout.rows_per_page = (layout.page_bytes - sizeof(PageHeader)) / row_bytes;
  layout.stride = RoundUp(largest, layout.rows_per_page);
  QUARRY_RETURN_IF_ERROR(
      ShapePooledTable(layout.file_spec(), layout.page_bytes - sizeof(PageHeader)).status());
  return layout;
}

uint64_t PartedTable::Bytes(const PartLayout& layout, uint32_t frames) {
  return frames * IoBuffer::MappedBytes(layout.part_bytes()) + IoBuffer::MappedBytes(layout.page_bytes) +
         uint64_t{layout.parts()} * (layout.pages_per_part() + sizeof(uint32_t));
}

Result<std::unique_ptr<PartedTable>> PartedTable::Make(IoBackend& backend, PageFile& file,
                                                       MemoryBudget& budget, PartLayout layout,
                                                       uint32_t frames) {
  QUARRY_TRY(MemoryBudget::Reservation reservation,
             budget.Reserve(Bytes(layout, frames) + file.memory_bytes(),
                            fmt::format("{} of {} parts of vectors", frames, layout.parts())));
  auto table = std::make_unique<PartedTableImpl>(backend, file, std::move(layout), std::move(reservation));
  QUARRY_RETURN_IF_ERROR(table->AllocateFrames(frames));
  return std::unique_ptr<PartedTable>(std::move(table));
}

}  // namespace quarry
