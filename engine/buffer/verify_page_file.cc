#include <algorithm>
#include <vector>

#include "quarry/base/units.h"
#include "quarry/buffer/page_file.h"
#include "quarry/io/buffer.h"

namespace quarry {
namespace {

struct PlacedPage {
  PageNumber page = 0;
  PageEntry entry;
};

// Those that the other map has there as well are left out.
std::vector<PlacedPage> InOrderOfSlots(const PageFile& file) {
  std::vector<PlacedPage> placed;
  for (PageNumber page = 0; page < file.page_count(); ++page) {
    const PageEntry entry = file.entry(page);
    if (entry.slot != kNoPageSlot && !file.is_kept(page)) placed.push_back({page, entry});
  }
  std::ranges::sort(placed, {}, [](const PlacedPage& p) { return p.entry.slot; });
  return placed;
}

// How many of the pages lie one behind the other from the first on; at most `count_max`.
size_t RunLength(std::span<const PlacedPage> placed, size_t count_max) {
  size_t count = 1;
  while (count < std::min(placed.size(), count_max) &&
         placed[count].entry.slot == placed[0].entry.slot + count) {
    ++count;
  }
  return count;
}

void Visit(const PageFile& file, const PlacedPage& placed, const Status& read,
           std::span<const std::byte> bytes, const PageVisit& visit) {
  const Status status = read.ok() ? file.Check(placed.page, placed.entry, bytes) : read;
  if (status.ok()) {
    visit(placed.page, bytes.subspan(sizeof(PageHeader)));
  } else {
    visit(placed.page, status);
  }
}

}  // namespace

Status VerifyPageFile(IoBackend& backend, const PageFileSpec& spec, const PageMapName& map,
                      const PageVisit& visit, const PageMapName& but_not) {
  QUARRY_TRY(const std::unique_ptr<PageFile> file,
             PageFile::OpenAs(backend, spec, map, but_not, OpenMode::kReadDirect));
  const size_t run_max = std::max<size_t>(1, kMiB / spec.page_bytes);
  QUARRY_TRY(const IoBuffer buffer, IoBuffer::Allocate(run_max * spec.page_bytes));
  const std::vector<PlacedPage> placed = InOrderOfSlots(*file);
  for (std::span<const PlacedPage> left(placed); !left.empty();) {
    const std::span<const PlacedPage> run = left.first(RunLength(left, run_max));
    left = left.subspan(run.size());
    const uint64_t offset = file->SlotOffset(run[0].entry.slot);
    const Status whole =
        backend.ReadAt(file->file(), offset, buffer.span().first(run.size() * spec.page_bytes));
    for (size_t i = 0; i < run.size(); ++i) {
      const std::span<std::byte> bytes = buffer.span().subspan(i * spec.page_bytes, spec.page_bytes);
      // A run that cannot be read may have only one bad page.
      const Status read =
          whole.ok() ? whole : backend.ReadAt(file->file(), offset + i * spec.page_bytes, bytes);
      Visit(*file, run[i], read, bytes, visit);
    }
  }
  return Status::Ok();
}

}  // namespace quarry
