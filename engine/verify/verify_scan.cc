#include "verify_scan.h"

#include <algorithm>
#include <cstring>

#include "quarry/base/units.h"
#include "quarry/format/checksum.h"

namespace quarry {
namespace {

// Checksums are a 1/1024 of what they cover.
constexpr uint64_t kChecksumsPieceBytes = 64 * kKiB;

}  // namespace

void VerifyReport::Add(const Status& fault, const Damage& damage) {
  if (faults.size() < kVerifyFaultsMax) faults.push_back(fault);
  AddDamage(damage);
}

// Faults of one object come one after another, and those of its rows in order.
void VerifyReport::AddDamage(const Damage& damage) {
  const bool of_rows = damage.row_count > 0;
  auto last = damages.rbegin();
  const auto same = [&] { return last->kind == damage.kind && last->name == damage.name; };
  while (last != damages.rend() && same() && (last->row_count > 0) != of_rows) ++last;
  if (last == damages.rend() || !same()) return damages.push_back(damage);
  if (!of_rows) return;
  const uint64_t end = last->first_row + last->row_count;
  if (damage.first_row > end && damages.size() < kVerifyFaultsMax) return damages.push_back(damage);
  last->row_count = std::max(end, damage.first_row + damage.row_count) - last->first_row;
}

void Verification::SetSubject(Damage::Kind kind, std::string_view name, std::string remedy) {
  subject_ = {.kind = kind, .name = std::string(name)};
  remedy_ = std::move(remedy);
}

void Verification::AddFault(Status fault) { AddFault(std::move(fault), 0, 0); }

void Verification::AddFault(Status fault, uint64_t first_row, uint64_t row_count) {
  if (!remedy_.empty()) fault = MakeStatus(fault.code(), "{} ({})", fault.message(), remedy_);
  Damage damage = subject_;
  damage.first_row = first_row;
  damage.row_count = row_count;
  report_.Add(fault, damage);
}

Status Verification::Note(const Status& status) {
  if (status.code() != Code::kCorruption) return status;
  AddFault(status);
  return Status::Ok();
}

Status Verification::Advance(uint64_t bytes) {
  report_.bytes += bytes;
  return progress_ ? progress_("verifying", report_.bytes, std::max(bytes_total_, report_.bytes))
                   : Status::Ok();
}

bool AllZero(std::span<const std::byte> bytes) {
  return bytes.empty() ||
         (bytes[0] == std::byte{0} && std::memcmp(bytes.data(), bytes.data() + 1, bytes.size() - 1) == 0);
}

Result<ChecksumCursor> ChecksumCursor::Make(Verification& run, const DataFile& data, const Section& section,
                                            uint64_t count) {
  ChecksumCursor cursor(run, data);
  const Section* found = data.footer.Find(section.checked_by);
  if (found == nullptr || found->bytes != count * sizeof(uint32_t)) {
    AddFault(run, "{}: footer: section \"{}\" has {} bytes of checksums instead of {}", data.file.path(),
             section.name, found == nullptr ? 0 : found->bytes, count * sizeof(uint32_t));
    return cursor;
  }
  cursor.section_ = *found;
  cursor.left_bytes_ = found->bytes;
  QUARRY_TRY(cursor.scanner_,
             FileScanner::Make(run.backend(), data.file, found->offset, found->bytes, kChecksumsPieceBytes));
  return cursor;
}

Result<std::optional<uint32_t>> ChecksumCursor::Next() {
  if (left_bytes_ == 0) return std::optional<uint32_t>();
  if (piece_.empty()) {
    QUARRY_TRY(piece_, scanner_->Next());
    QUARRY_RETURN_IF_ERROR(run_->Advance(piece_.size()));
    digest_.Update(piece_.first(std::min<uint64_t>(piece_.size(), left_bytes_)));
  }
  uint32_t checksum;
  std::memcpy(&checksum, piece_.data(), sizeof(checksum));
  piece_ = piece_.subspan(sizeof(checksum));
  left_bytes_ -= sizeof(checksum);
  return std::optional<uint32_t>(checksum);
}

Status ChecksumCursor::Finish() {
  if (!scanner_) return Status::Ok();
  if (const uint64_t computed = digest_.Digest(); computed != section_.checksum) {
    run_->AddFault(ChecksumFault(*data_, section_.offset, fmt::format("section \"{}\"", section_.name),
                                 section_.checksum, computed));
  }
  if (!AllZero(piece_)) {
    AddFault(*run_, "{}: page {}: the padding behind section \"{}\" is not zero", data_->file.path(),
             (section_.offset + section_.bytes) / kPageBytes, section_.name);
  }
  return Status::Ok();
}

PageScan::PageScan(Verification& run, const DataFile& data, Section section, Describe describe,
                   ChecksumCursor checksums, std::unique_ptr<FileScanner> scanner)
    : run_(&run),
      data_(&data),
      section_(std::move(section)),
      describe_(std::move(describe)),
      checksums_(std::move(checksums)),
      scanner_(std::move(scanner)) {}

Result<PageScan> PageScan::Make(Verification& run, const DataFile& data, const Section& section,
                                Describe describe) {
  QUARRY_TRY(ChecksumCursor checksums,
             ChecksumCursor::Make(run, data, section, CeilDiv(section.bytes, kPageBytes)));
  QUARRY_TRY(auto scanner, FileScanner::Make(run.backend(), data.file, section.offset, section.bytes));
  return PageScan(run, data, section, std::move(describe), std::move(checksums), std::move(scanner));
}

Result<PageScan::Piece> PageScan::Next() {
  QUARRY_TRY(const std::span<const std::byte> pages, scanner_->Next());
  Piece piece{.offset = offset_, .bytes = pages};
  if (pages.empty()) {
    QUARRY_RETURN_IF_ERROR(checksums_.Finish());
    return piece;
  }
  QUARRY_RETURN_IF_ERROR(run_->Advance(pages.size()));
  for (size_t at = 0; at < pages.size(); at += kPageBytes) {
    const uint64_t page = (offset_ + at) / kPageBytes;
    QUARRY_TRY(const std::optional<uint32_t> stored, checksums_.Next());
    const uint32_t computed = CellChecksum(pages.subspan(at, kPageBytes), page);
    if (stored == computed) continue;
    piece.sound = false;
    if (!stored) continue;  // the array is missing, which is noted
    const Contents contents = describe_(page);
    run_->AddFault(
        ChecksumFault(*data_, section_.offset + page * kPageBytes, contents.text, *stored, computed),
        contents.first_row, contents.row_count);
  }
  offset_ += pages.size();
  piece.bytes = pages.first(std::min<uint64_t>(pages.size(), section_.bytes - piece.offset));
  return piece;
}

}  // namespace quarry
