// Reads feature rows by node, and changes them: rows DATABASE
//
// DATABASE is a folder, or unix:SOCKET of `quarry serve`. Doubles the features of two nodes in one durable commit.
#include <cstdio>
#include <span>
#include <vector>

#include "quarry/client/store.h"

namespace {

// As Put takes them: the ids as uint64, then the rows behind each other.
std::vector<std::byte> BlockOf(std::span<const uint64_t> ids, std::span<const float> rows) {
  std::vector<std::byte> block;
  for (const auto part : {std::as_bytes(ids), std::as_bytes(rows)})
    block.insert(block.end(), part.begin(), part.end());
  return block;
}

quarry::Status DoubleRows(const char* address) {
  QUARRY_TRY(const auto store, quarry::client::Open(address, {.memory_bytes = 256 << 20}));
  const std::vector<quarry::NodeId> nodes = {3, 1};
  QUARRY_TRY(const auto rows, store->Lookup({.table = "feature", .ids = nodes}));
  if (rows->element_type() != quarry::ElementType::kFloat32) {
    return quarry::Status(quarry::Code::kUnsupported, "this example changes features of float32 alone");
  }
  // Rows lie behind each other, in the order of the ids, as the table has them.
  const auto* first = reinterpret_cast<const float*>(rows->bytes().data());
  std::vector<float> values(first, first + rows->count() * rows->dim());
  std::printf("node %u: %u floats, the first %g\n", nodes[0], rows->dim(), values[0]);

  for (float& value : values) value *= 2;
  const std::vector<uint64_t> ids(nodes.begin(), nodes.end());
  QUARRY_TRY(const uint64_t commit, store->Put({.tables = {{.table = "feature",
                                                            .rows = ids.size(),
                                                            .row_bytes = rows->dim() * 4,
                                                            .block = BlockOf(ids, values)}}}));
  QUARRY_TRY(const auto changed, store->Lookup({.table = "feature", .ids = nodes}));
  std::printf("commit %llu: the first is %g\n", static_cast<unsigned long long>(commit),
              *reinterpret_cast<const float*>(changed->bytes().data()));
  return quarry::Status();
}

}  // namespace

int main(int argc, char** argv) {
  const quarry::Status status =
      argc == 2 ? DoubleRows(argv[1]) : quarry::Status(quarry::Code::kUsage, "rows DATABASE");
  if (!status.ok()) std::fprintf(stderr, "rows: %s\n", status.ToString().c_str());
  return quarry::ExitCode(status.code());
}
