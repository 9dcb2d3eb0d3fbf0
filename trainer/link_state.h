// The state of a run of link prediction, as bytes (docs/format.md, "Training states"): its place, what is
// learned beside the vectors, and the vectors themselves where no embedding tables of the database keep them.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "link_memory.h"
#include "quarry/embedding/embedding_table.h"
#include "quarry/trainer/link_run.h"

namespace quarry {

// All that decides what is learned, as CheckSettings takes it. How it is learned (mode, threads, memory), how
// long and how often it is validated may change from checkpoint to checkpoint.
std::string LinkSettings(const LinkData& data, const LinkTrainOptions& train);

// The tables of nodes and relations; of nodes alone for decoders without vectors of relations. Rows of features are the first
// of them, and in no state.
std::vector<EmbeddingSpec> LinkTableSpecs(const LinkTrainOptions& train, const LinkCounts& counts);

// `tables` that lie in memory alone go into the bytes, row by row with their optimizer's state and
// timestamps, and so does the state's timestamp; none of that for a run whose tables the database has. Errors
// of the tables.
// Vectors in the state make a checkpoint as large as they are, where a table would write only the pages that
// changed. It is the price of having no second kind of table: a server's tables have one order of commits for
// everybody, so a run cannot have timestamps of its own there. A state with vectors has no timestamp of
// tables, and the record of a run tells by that which kind it is.
// `in_state`: of a run in state, whose tables these are, if it has any: it has none where features take the place of vectors
// and relations have none.
Result<std::vector<std::byte>> EncodeLinkState(const LinkState& state,
                                               std::span<EmbeddingTable* const> tables, bool in_state);
// Takes back what the same call has written; rows go to tables in which nobody has written any. kCorruption
// for bytes of another shape, kUnsupported for those of a later Quarry, kInvalidArgument for those of another
// task or of tables other than these. After an error the tables mean nothing.
Status DecodeLinkState(std::span<const std::byte> bytes, LinkState& state,
                       std::span<EmbeddingTable* const> tables, bool in_state);
// kInvalidArgument for a state that cannot occur in a training whose epoch at that place has `epoch_batches`
// batches, and the epochs before have `batches_before` together.
Status CheckPlace(const LinkState& state, uint64_t batches_before, uint64_t epoch_batches);
// The same where every epoch has as many.
inline Status CheckPlace(const LinkState& state, uint64_t epoch_batches) {
  const uint64_t epochs_before = std::max(state.place.epoch, 1U) - 1;
  return CheckPlace(state, epochs_before * epoch_batches, epoch_batches);
}

// The state of a run that keeps its best epoch's checkpoint beside the last one: that of `state` and `tables`, and
// `best`, the bytes of the best's, which are empty where it is the last one's.
Result<std::vector<std::byte>> EncodeLinkRun(const LinkState& state, std::span<EmbeddingTable* const> tables,
                                             bool in_state, const LinkEvaluation& valid,
                                             std::span<const std::byte> best);
// Spans of `bytes` that DecodeLinkState takes.
struct LinkRunParts {
  std::span<const std::byte> last, best;  // `best` is empty where it is `last`, and where none is kept
  std::optional<LinkEvaluation> valid;    // of the best, where one is kept
};
// Takes apart what EncodeLinkRun has made, or EncodeLinkState. kCorruption.
Result<LinkRunParts> SplitLinkRun(std::span<const std::byte> bytes);
// What DecodeLinkState takes of a run's in state, without the vectors. Its errors.
Status DecodeBesideVectors(std::span<const std::byte> bytes, LinkState& state);

// The most that states of tables in memory take: exactly what EncodeLinkState makes of them and, with patience, what
// EncodeLinkRun does where the best is not the last one. And what making one holds, with the encoder's part while that is
// put together and, with patience, the bytes of the best.
uint64_t LinkStateBytes(const LinkTrainOptions& options, const LinkCounts& counts);
uint64_t LinkCheckpointBytes(const LinkTrainOptions& options, const LinkCounts& counts);

}  // namespace quarry
