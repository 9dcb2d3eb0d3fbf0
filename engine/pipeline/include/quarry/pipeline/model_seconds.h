// What a model's step takes, or its forward pass.
#pragma once

namespace quarry {

struct ModelSeconds {
  double wall = 0;       // with all threads of the model, where the processors are its own
  double processor = 0;  // of one core, if one does it all: at least `wall`
};

}  // namespace quarry
