// main() of tests whose children are killed.
#include <gtest/gtest.h>

#include <cstdlib>

#include "support/zygote.h"

// The zygote comes before there are threads.
int main(int argc, char** argv) {
  setenv("QUARRY_LOG", "error", 0);  // what is removed is not worth a line each time
  quarry::testing_util::Zygote::Instance();
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
