#include "quarry/embedding/embedding_table.h"
