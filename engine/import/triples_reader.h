// Knowledge-graph triples: head TAB relation TAB tail. Private to this room.
#pragma once

#include <string>

#include "quarry/import/dataset.h"

namespace quarry {

// True when the first line of `path` has three tab-separated fields.
Result<bool> LooksLikeTriples(const std::string& path);

// Reads the names of train.txt, valid.txt and test.txt (those that exist) in `folder` and gives them ids in
// order of first appearance, then opens readers over the three. The names are held in memory, about 100 bytes
// each.
Status OpenTriples(const std::string& folder, Dataset& dataset);

}  // namespace quarry
