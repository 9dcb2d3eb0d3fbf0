// quarry export DB DEST --run RUN: the weights of a training run, as .safetensors (docs/cli.md). By the program that trains;
// HandOver becomes it.
#pragma once

#include <string>

#include "quarry/base/status.h"

namespace quarry::cli {

struct ModelExport {
  std::string path, run, dest, memory;
  bool json = false;
};
// kAlreadyExists for a DEST that is there, kUsage for one that is named as something else; the errors of ShapeOfRun and
// ReadWeights. The file appears whole or not at all.
Status ExportModel(const ModelExport& what);

}  // namespace quarry::cli
