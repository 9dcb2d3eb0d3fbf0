#include "patch.h"

#include <algorithm>
#include <cstring>
#include <filesystem>

#include "layout_file.h"
#include "quarry/base/process.h"
#include "quarry/base/units.h"

namespace quarry {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kBufferBytes = 4 * kMiB;

// The newest values of the rows that have places.
class NewRows {
 public:
  static uint64_t MemoryBytes(uint64_t rows, uint64_t row_bytes) {
    return rows * (row_bytes + sizeof(uint64_t));
  }

  // Afterwards a place's `row` is the number of its value.
  static Result<NewRows> Read(const RowOverlay& newer, uint64_t row_bytes, std::vector<RowPlace>& places) {
    NewRows rows;
    rows.row_bytes_ = row_bytes;
    std::vector<uint64_t> wanted = RowsOf(places);
    rows.values_.resize(wanted.size() * row_bytes);
    std::vector<bool> found(wanted.size());
    QUARRY_RETURN_IF_ERROR(newer.Read(wanted, [&](size_t i, std::span<const std::byte> value) {
      std::ranges::copy(value, rows.values_.begin() + static_cast<ptrdiff_t>(i * row_bytes));
      found[i] = true;
    }));
    for (RowPlace& place : places) {
      place.row = static_cast<uint64_t>(std::ranges::lower_bound(wanted, place.row) - wanted.begin());
    }
    std::erase_if(places, [&](const RowPlace& place) { return !found[place.row]; });
    return rows;
  }

  static std::vector<uint64_t> RowsOf(const std::vector<RowPlace>& places) {
    std::vector<uint64_t> rows;
    for (const RowPlace& place : places) rows.push_back(place.row);
    std::ranges::sort(rows);
    rows.erase(std::unique(rows.begin(), rows.end()), rows.end());
    return rows;
  }

  // Puts those rows over `bytes`, the regions from `offset` on, that lie there, whole or in part.
  void PutOver(const std::vector<RowPlace>& places, uint64_t offset, std::span<std::byte> bytes) const {
    const uint64_t end = offset + bytes.size();
    const uint64_t first = offset - std::min(offset, row_bytes_ - 1);
    auto place = std::ranges::lower_bound(places, first, {}, &RowPlace::offset);
    for (; place != places.end() && place->offset < end; ++place) {
      const uint64_t from = std::max(offset, place->offset);
      const uint64_t to = std::min(end, place->offset + row_bytes_);
      std::memcpy(bytes.data() + (from - offset),
                  values_.data() + place->row * row_bytes_ + (from - place->offset), to - from);
    }
  }

 private:
  uint64_t row_bytes_ = 0;
  std::vector<std::byte> values_;
};

// The trace, and the files that the layout goes on to read, under their names in the new folder.
Status LinkFiles(Store& store, const LayoutRecord& old, const PatchPlan& plan, const std::string& building) {
  const auto link = [&](const std::string& from, const std::string& name) {
    const Status linked = store.backend().Link(store.path() + "/" + from, building + "/" + name);
    return linked.ok() ? linked : Status(Code::kUnsupported, std::string(linked.message()));
  };
  for (const LayoutFile& file : FilesOf(old)) {
    const bool needed = file.kind == FileKind::kTrace
                            ? plan.keeps_trace
                            : std::ranges::count(plan.bases, file.generation, &LayoutBase::generation) > 0;
    if (!needed) continue;
    QUARRY_RETURN_IF_ERROR(link(file.path, file.kind == FileKind::kTrace ? std::string(kTraceFile)
                                                                         : LayoutBaseFile(file.generation)));
  }
  return Status::Ok();
}

Status CheckSpace(const std::string& folder, uint64_t bytes) {
  std::error_code error;
  const fs::space_info space = fs::space(folder, error);
  if (error || space.available >= bytes) return Status::Ok();
  return MakeStatus(Code::kNoSpace, "{}: {} free, and patching the layout writes {}", folder,
                    FormatBytes(space.available), FormatBytes(bytes));
}

}  // namespace

Result<LayoutRecord> WritePatch(Store& store, MemoryBudget& budget, const LayoutPlace& place,
                                const LayoutRecord& old, const PatchPlan& plan, const ReadRegions& read,
                                std::vector<RowPlace> places, const RowOverlay& newer,
                                const ProgressFunction& progress) {
  const LayoutDirectory& directory = plan.directory;
  QUARRY_TRY(const MemoryBudget::Reservation reservation,
             budget.Reserve(NewRows::MemoryBytes(NewRows::RowsOf(places).size(), directory.row_bytes) +
                                plan.extents.size() * sizeof(Extent) + 3 * kBufferBytes,
                            "patching a layout"));
  QUARRY_RETURN_IF_ERROR(CheckSpace(place.building, plan.file_bytes));
  QUARRY_RETURN_IF_ERROR(LinkFiles(store, old, plan, place.building));
  QUARRY_TRY(const NewRows rows, NewRows::Read(newer, directory.row_bytes, places));
  QUARRY_TRY(const std::unique_ptr<DataFileWriter> writer,
             DataFileWriter::Create(store.backend(), fmt::format("{}/{}", place.building, kLayoutFile)));
  writer->BeginSection(kRegionsSection, DataFileWriter::Cover::kPages, plan.written_bytes());
  QUARRY_TRY(const IoBuffer buffer, IoBuffer::Allocate(kBufferBytes));
  uint64_t done = 0;
  for (const PageRange& range : plan.written) {
    for (uint64_t at = 0; at < range.count * kPageBytes;) {
      const uint64_t offset = range.first * kPageBytes + at;
      const std::span<std::byte> pages =
          buffer.span().first(std::min(kBufferBytes, range.count * kPageBytes - at));
      QUARRY_RETURN_IF_ERROR(read(offset, pages));
      rows.PutOver(places, offset, pages);
      QUARRY_RETURN_IF_ERROR(writer->Append(pages));
      at += pages.size();
      done += pages.size();
      if (progress) QUARRY_RETURN_IF_ERROR(progress("patching", done, plan.written_bytes()));
    }
  }
  QUARRY_RETURN_IF_ERROR(writer->EndSection());
  QUARRY_RETURN_IF_ERROR(WriteDirectory(*writer, directory, plan.extents));
  LayoutRecord record = old;
  const std::shared_ptr<const Manifest> manifest = store.manifest();
  const TableRecord* const table = manifest->FindTable(record.spec.feature_table);
  QUARRY_TRY(record.file_bytes, writer->Finish({.kind = FileKind::kLayout,
                                                .database_id = manifest->database_id,
                                                .generation = place.generation,
                                                .row_count = directory.node_count,
                                                .dim = table->dim}));
  record.generation = place.generation;
  record.bases = plan.bases;
  record.created_utc = UtcNow();
  return record;
}

}  // namespace quarry
