#include "embedding_files.h"

#include <algorithm>
#include <filesystem>
#include <set>
#include <utility>

namespace quarry {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPageFileEnd = ".qet";
constexpr std::string_view kMapFileEnd = ".qem";
constexpr std::string_view kDigits = "0123456789";

// Cuts "-NUMBER" off the end of `text`.
bool CutNumber(std::string_view& text) {
  const size_t dash = text.rfind('-');
  if (dash == std::string_view::npos || dash + 1 == text.size() ||
      text.find_first_not_of(kDigits, dash + 1) != std::string_view::npos) {
    return false;
  }
  text = text.substr(0, dash);
  return true;
}

bool CutEnd(std::string_view& text, std::string_view end) {
  if (!text.ends_with(end)) return false;
  text.remove_suffix(end.size());
  return true;
}

// What is stored as numbers, as docs/format.md has them.
static_assert(static_cast<int>(OptimizerKind::kSgd) == 0 && static_cast<int>(OptimizerKind::kAdagrad) == 1 &&
              static_cast<int>(OptimizerKind::kAdam) == 2);
static_assert(static_cast<int>(InitKind::kZeros) == 0 && static_cast<int>(InitKind::kUniform) == 1 &&
              static_cast<int>(InitKind::kNormal) == 2);

Result<EmbeddingSpec> SpecOf(const EmbeddingRecord& record, const std::string& path) {
  if (record.optimizer > static_cast<uint8_t>(OptimizerKind::kAdam) ||
      record.init > static_cast<uint8_t>(InitKind::kNormal) ||
      (record.element_type != ElementType::kFloat32 && record.element_type != ElementType::kBfloat16)) {
    return MakeStatus(Code::kUnsupported,
                      "{}: embedding table \"{}\" has optimizer {}, initial values {} and elements {}: this "
                      "Quarry does not know them all",
                      path, record.name, record.optimizer, record.init, ElementTypeName(record.element_type));
  }
  return EmbeddingSpec{.row_count = record.row_count,
                       .dim = record.dim,
                       .element_type = record.element_type,
                       .optimizer = static_cast<OptimizerKind>(record.optimizer),
                       .init = static_cast<InitKind>(record.init),
                       .init_scale = record.init_scale,
                       .seed = record.seed};
}

}  // namespace

std::string PageFileName(std::string_view table, uint64_t generation) {
  return fmt::format("{}/{}-{}{}", kEmbeddingFolder, table, generation, kPageFileEnd);
}

std::string MapFileName(std::string_view table, uint64_t generation, uint64_t map_generation) {
  return fmt::format("{}/{}-{}-{}{}", kEmbeddingFolder, table, generation, map_generation, kMapFileEnd);
}

std::optional<std::string_view> TableOfFile(std::string_view file) {
  const bool ours = (CutEnd(file, kPageFileEnd) && CutNumber(file)) ||
                    (CutEnd(file, kMapFileEnd) && CutNumber(file) && CutNumber(file));
  if (!ours || !IsTableName(file)) return std::nullopt;
  return file;
}

bool IsTableName(std::string_view name) {
  const auto allowed = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
  };
  return !name.empty() && std::ranges::all_of(name, allowed);
}

Result<EmbeddingFiles> FilesOf(const Store& store, const EmbeddingRecord& record) {
  EmbeddingFiles files;
  QUARRY_TRY(files.spec, SpecOf(record, store.path()));
  files.pages = {.path = store.path() + "/" + record.file,
                 .database_id = store.manifest()->database_id,
                 .generation = record.generation,
                 .page_bytes = record.page_bytes,
                 .page_count = record.page_count};
  const auto shape = ShapePooledTable(files.spec, record.page_bytes - sizeof(PageHeader));
  if (!shape.ok() || shape->page_count != record.page_count) {
    return MakeStatus(Code::kCorruption,
                      "{}: the manifest says that embedding table \"{}\" has {} rows of {} elements in {} "
                      "pages of {} bytes, which cannot be",
                      store.path(), record.name, record.row_count, record.dim, record.page_count,
                      record.page_bytes);
  }
  files.shape = *shape;
  if (!record.map_file.empty()) {
    files.map = {.path = store.path() + "/" + record.map_file, .generation = record.map_generation};
  }
  if (!record.kept_map_file.empty()) {
    files.kept = {.path = store.path() + "/" + record.kept_map_file,
                  .generation = record.kept_map_generation};
  }
  return files;
}

Status MissingIsCorruption(const Status& status) {
  if (status.code() != Code::kNotFound) return status;
  return MakeStatus(Code::kCorruption, "{}; the catalog names this file: restore it", status.message());
}

Status ForEachUnnamedFile(const Store& store, const std::function<void(const std::string& file)>& visit) {
  std::set<std::string> named;
  const std::shared_ptr<const Manifest> manifest = store.manifest();
  for (const EmbeddingRecord& record : manifest->embeddings) {
    for (std::string& file : record.files()) named.insert(std::move(file));
  }
  const std::string folder = fmt::format("{}/{}", store.path(), kEmbeddingFolder);
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    const std::string file = entry->path().filename().string();
    if (!named.contains(fmt::format("{}/{}", kEmbeddingFolder, file))) visit(file);
  }
  if (!error || error == std::errc::no_such_file_or_directory) return Status::Ok();
  return ErrnoStatus(error.value(), "list", folder);
}

}  // namespace quarry
