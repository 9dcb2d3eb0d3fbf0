// What training on nodes takes of a graph's types and relations, for models that tell them apart: fanouts by type of edges,
// rows by type of nodes, the relation of each edge. They do nothing for other models.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "quarry/client/store.h"
#include "quarry/database.h"
#include "quarry/format/manifest.h"
#include "quarry/format/road_spec.h"
#include "quarry/trainer/train.h"

namespace quarry::cli {

// In a graph with types a node is made to draw so many neighbors a hop by edges of each type; batches then say their types,
// and have rows of every table. kUsage where that is more than a node can draw. The fanouts may be the road's own.
Status AskByType(const Manifest& manifest, const ModelSpec& model, const std::vector<uint32_t>& fanouts,
                 RoadSpec& road);

// Tells the model which rows it is given, and of how many kinds edges are. kInvalidArgument where edges have one relation.
Status TakeInputs(const Manifest& manifest, const RoadSpec& road, TrainOptions& train);

// Loads the relation of each edge where batches do not say it: 4 bytes an edge of the database's budget. Whoever has the
// database lets go of them before it. kOutOfBudget, kCorruption.
Status TakeKinds(Database& database, const RoadSpec& road, TrainOptions& train);
// The same from a store, here or at a server, of the edges that the manifest tells of: 4 bytes an edge, which are the
// trainer's. kOutOfBudget where the machine or cgroup has not as much, or the server, which reads all edges for it;
// kInvalidArgument where edges came or went since.
Status TakeKindsOf(client::Store& store, const Manifest& manifest, const RoadSpec& road, TrainOptions& train);
// Once the road is open, whose edge ids are those of its snapshot: kInvalidArgument where edges came or went since the manifest,
// so that the relations may be other edges'. For models that took them.
Status CheckEdgesStayed(client::Store& store, const std::string& address, const Manifest& manifest,
                        const RoadSpec& road, const TrainOptions& train);

}  // namespace quarry::cli
