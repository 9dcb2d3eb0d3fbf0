// Writes the corpus of fuzz_wire: a message of every kind, the hostile frames, a batch.
//
//   build/release/bin/make_wire_corpus tests/fuzz/corpus/wire
#include <fmt/format.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <memory>
#include <span>
#include <string>

#include "format/wire_hostile.h"
#include "format/wire_random.h"
#include "quarry/format/wire_batch.h"
#include "quarry/format/wire_sql.h"

namespace quarry::wire {
namespace {

void WriteFile(const std::filesystem::path& path, std::span<const std::byte> bytes) {
  std::ofstream file(path, std::ios::binary);
  file.write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
}

void WriteMessages(const std::filesystem::path& folder) {
  for (size_t kind = 0; kind < std::variant_size_v<Request>; ++kind) {
    const auto bytes = EncodeRequest(7, RandomMessage(MixSeed(1, kind)).request(kind)).value();
    WriteFile(folder / fmt::format("request-{:02}", kind), bytes);
  }
  for (size_t kind = 0; kind < std::variant_size_v<Response>; ++kind) {
    const auto bytes = EncodeResponse(7, RandomMessage(MixSeed(2, kind)).response(kind)).value();
    WriteFile(folder / fmt::format("response-{:02}", kind), bytes);
  }
}

// A batch whose rows are of one table, or of types of nodes.
void WriteBatch(const std::filesystem::path& folder, bool typed) {
  const BatchShape shape = {.hops = 1,
                            .seeds = 2,
                            .targets = 2,
                            .nodes = 3,
                            .edges = 2,
                            .labels = true,
                            .edge_ids = true,
                            .relations = typed,
                            .node_types = typed ? 2U : 0U,
                            .dim = typed ? 0U : 1U,
                            .rows = 4,
                            .stride_bytes = 4,
                            .slots = true};
  std::vector<std::byte> bytes(BatchBytes(shape).value() + kBatchAlignment);
  void* start = bytes.data();
  size_t left = bytes.size();
  std::align(kBatchAlignment, BatchBytes(shape).value(), start, left);
  const std::span slot(static_cast<std::byte*>(start), BatchBytes(shape).value());
  const BatchWriter batch = WriteBatchHeader(shape, slot).value();
  batch.hop_offsets[0] = 2;
  batch.hop_offsets[1] = 3;
  batch.indptr[1] = 1;
  batch.indptr[2] = 2;
  batch.indices[0] = 2;
  if (typed) {
    batch.relations[1] = 1;
    batch.type_rows[1].dim = 1;
    for (TypeRows& rows : batch.type_rows) rows.element_type = ElementType::kFloat32;
  }
  WriteFile(folder / (typed ? "batch-typed" : "batch"), slot);
}

void WriteRows(const std::filesystem::path& folder) {
  const std::vector<SqlValue> values = {std::monostate(), int64_t{-1}, 0.5, std::string("text"),
                                        std::vector<std::byte>(9)};
  std::vector<std::byte> bytes = {std::byte{5}, std::byte{6}};  // columns, bytes of a page less one
  for (int row = 0; row < 3; ++row) {
    const std::vector<std::byte> more = SqlValueBytes(values);
    bytes.insert(bytes.end(), more.begin(), more.end());
  }
  WriteFile(folder / "rows", bytes);
}

}  // namespace
}  // namespace quarry::wire

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: %s FOLDER\n", argv[0]);
    return 2;
  }
  const std::filesystem::path folder = argv[1];
  quarry::wire::WriteMessages(folder);
  for (const auto& hostile : quarry::wire::HostileFrames()) {
    quarry::wire::WriteFile(folder / ("hostile-" + hostile.name), hostile.bytes);
  }
  for (const bool typed : {false, true}) quarry::wire::WriteBatch(folder, typed);
  quarry::wire::WriteRows(folder);
  return 0;
}
