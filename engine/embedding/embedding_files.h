// The files of embedding tables: their names, and what the manifest's record says of them. Private to this
// room.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "quarry/buffer/page_file.h"
#include "quarry/embedding/embedding_table.h"
#include "quarry/embedding/pooled_table.h"
#include "quarry/format/manifest.h"
#include "quarry/storage/store.h"

namespace quarry {

inline constexpr std::string_view kEmbeddingFolder = "embeddings";

// Relative to the database: "embeddings/NAME-GENERATION.qet", "embeddings/NAME-GENERATION-MAP.qem".
std::string PageFileName(std::string_view table, uint64_t generation);
std::string MapFileName(std::string_view table, uint64_t generation, uint64_t map_generation);
// The table whose file has this name in the folder; nothing for names that are not of our making.
std::optional<std::string_view> TableOfFile(std::string_view file);

// Whether the name is made of letters, digits, - and _.
bool IsTableName(std::string_view name);

// What a record describes.
struct EmbeddingFiles {
  EmbeddingSpec spec;
  PooledTableShape shape;
  PageFileSpec pages;
  PageMapName map;
  PageMapName kept;  // an empty path where no map is kept
};
// kCorruption for a table that cannot be, kUnsupported for one that this Quarry does not know.
Result<EmbeddingFiles> FilesOf(const Store& store, const EmbeddingRecord& record);

// A file that the catalog names and that is not there is corruption.
Status MissingIsCorruption(const Status& status);

// Calls visit(file) with the name of everything in the folder that the manifest does not name.
Status ForEachUnnamedFile(const Store& store, const std::function<void(const std::string& file)>& visit);

}  // namespace quarry
