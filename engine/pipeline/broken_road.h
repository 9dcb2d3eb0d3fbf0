// What a road answers whose threads found no memory in the midst of a pass. Private to this room.
#pragma once

#include "quarry/base/status.h"

namespace quarry {

// Rows that such a thread had pinned or begun to read stay so, and the next pass would wait for them.
inline Status RoadIsBroken() {
  return Status(Code::kOutOfBudget,
                "the pass before ran out of memory in its midst: close the stream, and open it again");
}

}  // namespace quarry
