// SQLite as a program links it, or, in the loadable extension, as the program that loads it passes it on:
// there every sqlite3_* is a macro. For the sources that are compiled into both. Private to this room.
#pragma once

#ifdef QUARRY_SQLITE_EXTENSION
#include <sqlite3ext.h>
SQLITE_EXTENSION_INIT3
#else
#include <sqlite3.h>
#endif
