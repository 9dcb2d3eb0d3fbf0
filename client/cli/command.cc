// The program `quarry`, and `quarry-train`.
#include "command.h"

int main(int argc, char** argv) { return quarry_command(argc, argv); }
