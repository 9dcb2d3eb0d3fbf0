#include "quarry/embedding/optimizer.h"
