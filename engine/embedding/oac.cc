#include "quarry/embedding/oac.h"
