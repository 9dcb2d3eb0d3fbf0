// What the model takes for one batch on this machine: measured, since it is a matter of widths, threads and BLAS.
#pragma once

#include <cstdint>

#include "quarry/base/status.h"
#include "quarry/format/batch_view.h"
#include "quarry/pipeline/model_seconds.h"
#include "quarry/trainer/train.h"

namespace quarry {

struct BatchSeconds {
  ModelSeconds train;     // forward, backward and step
  ModelSeconds evaluate;  // forward
};

// Trains a model of `options` on the graph of `batch` with rows and labels of its own, and throws it away: the batch
// needs neither. Once with one thread, by the processor's clock, which other processes hardly change; once with
// all threads, by the clock on the wall, of which what is beyond the former is not the model's: threads of BLAS that
// wait for each other on processors that others use take several times as long. `rounds` steps are taken each time, and
// the fastest counts: the first one allocates. Holds what training on the batch holds, and up to 16 MiB of rows. The
// errors of Train; a training afterwards is not changed by it.
// REQUIRES: at least one round, a class and a feature.
Result<BatchSeconds> MeasureBatchSeconds(const TrainOptions& options, uint32_t feature_dim,
                                         ElementType element_type, uint32_t class_count,
                                         const BatchView& batch, unsigned rounds);

}  // namespace quarry
