// The embedding tables that a run of link prediction has its vectors in: named after it, so that whoever removes the run
// knows them.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>

namespace quarry {

// The ends of their names: for nodes, for nodes that lie in parts, and for relations.
inline constexpr std::string_view kRunTableEnds[] = {"-nodes", "-parts", "-relations"};

inline bool IsTableOfRun(std::string_view table, std::string_view run) {
  return table.starts_with(run) && std::ranges::count(kRunTableEnds, table.substr(run.size())) > 0;
}

}  // namespace quarry
