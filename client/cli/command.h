// The command as a function, which is all that a wheel's library shows of it.
#pragma once

// What main() of the command does with its arguments, and its exit code. Once in a process, whose signals it handles.
extern "C" int quarry_command(int argc, char** argv);
