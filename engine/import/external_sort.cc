#include "quarry/import/external_sort.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cassert>
#include <cstring>
#include <filesystem>

#include "quarry/base/units.h"
#include "quarry/format/feature_table.h"

namespace quarry {
namespace {

constexpr uint64_t kWindowBytesMin = 256 * kKiB;  // below this a read costs a request more than bytes
constexpr uint64_t kWindowBytesMax = 4 * kMiB;
constexpr uint64_t kFirstBufferBytes = 1 * kMiB;
constexpr uint64_t kWriteBytes = 4 * kMiB;

}  // namespace

template <typename Key>
Key* RadixSort(Key* keys, Key* scratch, size_t count) {
  constexpr unsigned kDigits = sizeof(Key);
  std::vector<std::array<size_t, 256>> histograms(kDigits);
  for (size_t i = 0; i < count; i++) {
    Key key = keys[i];
    for (unsigned digit = 0; digit < kDigits; digit++, key >>= 8)
      histograms[digit][static_cast<uint8_t>(key)]++;
  }
  for (unsigned digit = 0; digit < kDigits; digit++) {
    std::array<size_t, 256>& starts = histograms[digit];
    const unsigned shift = 8 * digit;
    if (count == 0 || starts[static_cast<uint8_t>(keys[0] >> shift)] == count) continue;  // all alike
    size_t start = 0;
    for (size_t& entry : starts) start += std::exchange(entry, start);
    for (size_t i = 0; i < count; i++) scratch[starts[static_cast<uint8_t>(keys[i] >> shift)]++] = keys[i];
    std::swap(keys, scratch);
  }
  return keys;
}

Result<std::unique_ptr<RunFile>> RunFile::Create(IoBackend& backend, const std::string& directory) {
  std::string path;
  std::error_code error;
  for (int number = 0; path.empty() || std::filesystem::exists(path, error); number++) {
    path = fmt::format("{}/sort-{}.tmp", directory, number);
  }
  QUARRY_TRY(File file, backend.Open(path, OpenMode::kCreateDirect));
  if (unlink(path.c_str()) != 0) return ErrnoStatus(errno, "unlink", path);
  return std::unique_ptr<RunFile>(new RunFile(backend, std::move(file)));
}

Status RunFile::Append(std::span<const std::byte> bytes) {
  // Direct writes take whole pages; what follows a run's last key in its page is never read as a key.
  const std::span<const std::byte> pages(bytes.data(), RoundUp(bytes.size(), kPageBytes));
  for (size_t at = 0; at < pages.size(); at += kWriteBytes) {
    const auto part = pages.subspan(at, std::min<size_t>(kWriteBytes, pages.size() - at));
    QUARRY_RETURN_IF_ERROR(backend_.WriteAt(file_, open_.offset + open_.bytes + at, part));
  }
  open_.bytes += bytes.size();
  return Status::Ok();
}

void RunFile::EndRun() {
  runs_.push_back(open_);
  open_ = {.offset = open_.offset + RoundUp(open_.bytes, kPageBytes), .bytes = 0};
}

Status RunFile::Read(const Run& run, uint64_t offset, std::span<std::byte> out) const {
  return backend_.ReadAt(file_, run.offset + offset, out);
}

// Merges runs [first, first + count) of a file.
template <typename Key>
class ExternalSorter<Key>::Merger {
 public:
  static Result<std::unique_ptr<Merger>> Make(const RunFile& file, size_t first, size_t count,
                                              uint64_t memory_bytes, bool deduplicate) {
    std::unique_ptr<Merger> merger(new Merger(file, deduplicate));
    const uint64_t window_bytes =
        std::clamp(RoundDown(memory_bytes / count, kPageBytes), kWindowBytesMin, kWindowBytesMax);
    QUARRY_TRY(merger->buffer_, IoBuffer::Allocate(window_bytes * count));
    const size_t leaf_count = std::bit_ceil(count);
    merger->windows_.resize(leaf_count);
    merger->losers_.resize(leaf_count);
    for (size_t i = 0; i < count; i++) {
      Window& window = merger->windows_[i];
      window.run = file.runs()[first + i];
      window.pages = merger->buffer_.span().subspan(i * window_bytes, window_bytes);
      QUARRY_RETURN_IF_ERROR(merger->Refill(window));
    }
    merger->Build();
    return merger;
  }

  Result<size_t> Read(std::span<Key> out) {
    size_t filled = 0;
    while (filled < out.size() && winner_.key != kNoKey) {
      const Key key = winner_.key;
      out[filled] = key;
      // Without a branch: whether neighbours are equal is a coin flip where it matters.
      filled += static_cast<size_t>(!deduplicate_ || key != last_);
      last_ = key;
      Window& window = windows_[winner_.leaf];
      if (window.at == window.end) QUARRY_RETURN_IF_ERROR(Refill(window));
      winner_.key = window.at == window.end ? kNoKey : *window.at++;
      Replay();
    }
    return filled;
  }

 private:
  struct Window {
    RunFile::Run run;
    uint64_t read_bytes = 0;  // bytes of the run that have been read
    std::span<std::byte> pages;
    const Key* at = nullptr;
    const Key* end = nullptr;
  };
  struct Entry {
    Key key = kNoKey;
    size_t leaf = 0;
  };

  Merger(const RunFile& file, bool deduplicate) : file_(file), deduplicate_(deduplicate) {}

  // Leaves at == end when the run is used up.
  Status Refill(Window& window) {
    const uint64_t bytes = std::min<uint64_t>(window.pages.size(), window.run.bytes - window.read_bytes);
    const std::span<std::byte> pages = window.pages.first(RoundUp(bytes, kPageBytes));
    if (bytes > 0) QUARRY_RETURN_IF_ERROR(file_.Read(window.run, window.read_bytes, pages));
    window.read_bytes += bytes;
    window.at = reinterpret_cast<const Key*>(window.pages.data());
    window.end = window.at + bytes / sizeof(Key);
    return Status::Ok();
  }

  // losers_[n] holds who lost at inner node n; leaves are nodes [leaf count, 2 * leaf count).
  void Build() {
    const size_t leaf_count = windows_.size();
    std::vector<Entry> winners(2 * leaf_count);
    for (size_t i = 0; i < leaf_count; i++) {
      Window& window = windows_[i];
      winners[leaf_count + i] = {window.at == window.end ? kNoKey : *window.at++, i};
    }
    for (size_t node = leaf_count - 1; node > 0; node--) {
      const Entry& left = winners[2 * node];
      const Entry& right = winners[2 * node + 1];
      winners[node] = left.key <= right.key ? left : right;
      losers_[node] = left.key <= right.key ? right : left;
    }
    winner_ = winners[1];
  }

  // The winner has a new key: it plays again along its path to the root. Which one wins is a coin flip, so
  // the selects are kept apart for the compiler to turn into conditional moves: twice as fast as branches.
  void Replay() {
    Key key = winner_.key;
    size_t leaf = winner_.leaf;
    for (size_t node = (windows_.size() + leaf) / 2; node > 0; node /= 2) {
      const Key other_key = losers_[node].key;
      const size_t other_leaf = losers_[node].leaf;
      const bool loses = other_key < key;
      losers_[node].key = loses ? key : other_key;
      losers_[node].leaf = loses ? leaf : other_leaf;
      key = loses ? other_key : key;
      leaf = loses ? other_leaf : leaf;
    }
    winner_ = {key, leaf};
  }

  const RunFile& file_;
  const bool deduplicate_;
  IoBuffer buffer_;
  std::vector<Window> windows_;
  std::vector<Entry> losers_;
  Entry winner_;
  Key last_ = kNoKey;
};

template <typename Key>
ExternalSorter<Key>::ExternalSorter(IoBackend& backend, ExternalSortOptions options)
    : backend_(backend),
      options_(std::move(options)),
      capacity_(RoundDown(options_.memory_bytes / 2, kPageBytes) / sizeof(Key)) {
  assert(options_.memory_bytes >= kExternalSortBytesMin);
}

template <typename Key>
ExternalSorter<Key>::~ExternalSorter() = default;

template <typename Key>
Status ExternalSorter<Key>::Add(std::span<const Key> keys_in) {
  while (!keys_in.empty()) {
    if (count_ * sizeof(Key) == buffer_.size()) QUARRY_RETURN_IF_ERROR(MakeRoom());
    const size_t take = std::min<size_t>(keys_in.size(), buffer_.size() / sizeof(Key) - count_);
    std::memcpy(keys() + count_, keys_in.data(), take * sizeof(Key));
    count_ += take;
    keys_in = keys_in.subspan(take);
  }
  return Status::Ok();
}

// Doubles the buffer, or spills it when it has its full size. While it grows there is no sort scratch, so
// that old and new buffer together stay below the memory.
template <typename Key>
Status ExternalSorter<Key>::MakeRoom() {
  const uint64_t full_bytes = capacity_ * sizeof(Key);
  if (buffer_.size() == full_bytes) return Spill();
  const uint64_t bytes =
      std::clamp<uint64_t>(2 * buffer_.size(), std::min(kFirstBufferBytes, full_bytes), full_bytes);
  QUARRY_TRY(IoBuffer larger, IoBuffer::Allocate(bytes));
  if (count_ > 0) std::memcpy(larger.data(), buffer_.data(), count_ * sizeof(Key));
  buffer_ = std::move(larger);
  return Status::Ok();
}

template <typename Key>
Status ExternalSorter<Key>::SortBuffer() {
  if (scratch_.size() < count_ * sizeof(Key)) {
    QUARRY_TRY(scratch_, IoBuffer::Allocate(buffer_.size()));
  }
  Key* const sorted = RadixSort(keys(), reinterpret_cast<Key*>(scratch_.data()), count_);
  if (sorted != keys()) std::swap(buffer_, scratch_);
  if (options_.deduplicate) count_ = static_cast<uint64_t>(std::unique(keys(), keys() + count_) - keys());
  return Status::Ok();
}

template <typename Key>
Status ExternalSorter<Key>::Spill() {
  QUARRY_RETURN_IF_ERROR(SortBuffer());
  if (runs_ == nullptr) {
    QUARRY_TRY(runs_, RunFile::Create(backend_, options_.scratch_directory));
  }
  QUARRY_RETURN_IF_ERROR(runs_->Append(std::as_bytes(std::span(keys(), count_))));
  runs_->EndRun();
  spilled_bytes_ += count_ * sizeof(Key);
  count_ = 0;
  return Status::Ok();
}

template <typename Key>
Status ExternalSorter<Key>::Finish() {
  if (runs_ == nullptr) {
    if (count_ > 0) QUARRY_RETURN_IF_ERROR(SortBuffer());
    scratch_ = IoBuffer();
    return Status::Ok();
  }
  if (count_ > 0) QUARRY_RETURN_IF_ERROR(Spill());
  buffer_ = IoBuffer();
  scratch_ = IoBuffer();
  QUARRY_RETURN_IF_ERROR(MergeDown());
  QUARRY_TRY(merger_,
             Merger::Make(*runs_, 0, runs_->runs().size(), options_.memory_bytes / 2, options_.deduplicate));
  return Status::Ok();
}

// Merges groups of runs into longer ones until a window for each fits in half of the memory.
template <typename Key>
Status ExternalSorter<Key>::MergeDown() {
  const size_t fan_in_max = std::max<size_t>(2, options_.memory_bytes / 2 / kWindowBytesMin);
  while (runs_->runs().size() > fan_in_max) {
    QUARRY_TRY(auto longer, RunFile::Create(backend_, options_.scratch_directory));
    QUARRY_TRY(const IoBuffer out,
               IoBuffer::Allocate(std::min(kWriteBytes, RoundDown(options_.memory_bytes / 4, kPageBytes))));
    const std::span<Key> batch(reinterpret_cast<Key*>(out.data()), out.size() / sizeof(Key));
    for (size_t first = 0; first < runs_->runs().size(); first += fan_in_max) {
      const size_t count = std::min(fan_in_max, runs_->runs().size() - first);
      QUARRY_TRY(const auto merger,
                 Merger::Make(*runs_, first, count, options_.memory_bytes / 2, options_.deduplicate));
      while (true) {
        QUARRY_TRY(const size_t n, merger->Read(batch));
        QUARRY_RETURN_IF_ERROR(longer->Append(std::as_bytes(batch.first(n))));
        spilled_bytes_ += n * sizeof(Key);
        if (n < batch.size()) break;
      }
      longer->EndRun();
    }
    runs_ = std::move(longer);
  }
  return Status::Ok();
}

template <typename Key>
Result<size_t> ExternalSorter<Key>::Read(std::span<Key> out) {
  if (merger_ != nullptr) return merger_->Read(out);
  const size_t n = std::min<size_t>(out.size(), count_ - read_);
  if (n > 0) std::memcpy(out.data(), keys() + read_, n * sizeof(Key));
  read_ += n;
  return n;
}

template class ExternalSorter<uint64_t>;
template class ExternalSorter<uint128_t>;
template uint64_t* RadixSort(uint64_t*, uint64_t*, size_t);
template uint128_t* RadixSort(uint128_t*, uint128_t*, size_t);

}  // namespace quarry
