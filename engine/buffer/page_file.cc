#include "quarry/buffer/page_file.h"
