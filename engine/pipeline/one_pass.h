// OnePass: sees to it that a road has one pass at a time. A pass ends when its stream is destroyed. Private to this
// room.
#pragma once

#include <cassert>
#include <functional>
#include <memory>
#include <utility>

#include "quarry/base/status.h"
#include "quarry/pipeline/batch_stream.h"

namespace quarry {

class OnePass {
 public:
  OnePass() = default;
  ~OnePass() { assert(!under_way_ && "streams must be gone before their road"); }
  OnePass(const OnePass&) = delete;
  OnePass& operator=(const OnePass&) = delete;

  bool under_way() const { return under_way_; }
  // Whether another one may begin. Where threads of the one before found no memory in its midst, rows that they had
  // pinned or begun to read stay so, and the next pass would wait for them.
  Status Check() const {
    if (under_way_) {
      return Status(Code::kInternal, "a pass was started while the stream of another one of the road exists");
    }
    if (!broken_) return Status::Ok();
    return Status(Code::kOutOfBudget,
                  "the pass before ran out of memory in its midst: close the stream, and open it again");
  }

  // Starts the stream that make(on_end) makes, with which the pass ends: its destructor calls on_end(whole). Not whole:
  // `mend` puts the road in order for the next pass; without one there is none.
  template <typename Make>
  Result<std::unique_ptr<BatchStream>> Start(const Make& make, std::function<void()> mend = {}) {
    auto stream = make([this, mend = std::move(mend)](bool whole) {
      under_way_ = false;
      if (whole) return;
      if (mend) return mend();
      broken_ = true;
    });
    under_way_ = true;
    QUARRY_RETURN_IF_ERROR(stream->Start());
    return std::unique_ptr<BatchStream>(std::move(stream));
  }

 private:
  bool under_way_ = false;
  bool broken_ = false;
};

}  // namespace quarry
